"""`python -m multislice_nb emulator`: start, stop, status, env, fault."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

__all__ = ["add_parser", "parameter", "run"]


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """Add the `emulator` subcommand to a parser's subparsers.

    Returns:
        The new parser; its arguments go to `run`.
    """
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "emulator",
        help="the Cloud TPU emulator on this machine",
        description="The Cloud TPU emulator on this machine: a process of its own that serves the Cloud TPU API.",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("start", help="start it, if it does not run")
    actions.add_parser("stop", help="stop it with everything that runs on it")
    actions.add_parser("status", help="say how it is, as JSON")
    env = actions.add_parser("env", help="print the variables that point gcloud and Python clients at it")
    env.add_argument("--magic", action="store_true", help="as %%env lines for a notebook")
    env.add_argument("--project", default=None)
    env.add_argument("--zone", default=None)
    fault = actions.add_parser("fault", help="make something fail; without a name, list what can")
    fault.add_argument("kind", nargs="?", help="such as preempt, maintenance, stock-out")
    fault.add_argument(
        "parameters", nargs="*", metavar="name=value", help="its parameters; values are JSON or text"
    )
    fault.add_argument("--clear", action="store_true", help="take back every fault that lasts")
    return parser


def run(args: argparse.Namespace) -> int:
    """Do what was asked for.

    Returns:
        The exit status: for `status`, 3 where no emulator runs, as service managers do.

    Raises:
        EmulatorError: It did not start, stop or answer.
    """
    actions = {"start": _start, "stop": _stop, "status": _status, "env": _env, "fault": _fault}
    return actions[args.action](args)


def _start(args: argparse.Namespace) -> int:  # noqa: ARG001 - one signature for all actions
    from multislice_nb.emulator import daemon

    address = daemon.ensure_running()
    print(f"Cloud TPU emulator at {address.target} (process {address.pid}), state in {address.home}")
    return 0


def _stop(args: argparse.Namespace) -> int:  # noqa: ARG001
    from multislice_nb.emulator import daemon

    print("Cloud TPU emulator stopped" if daemon.stop() else "No Cloud TPU emulator was running")
    return 0


def _status(args: argparse.Namespace) -> int:  # noqa: ARG001
    from multislice_nb.emulator import daemon

    found = daemon.status()
    if found is None:
        print("No Cloud TPU emulator is running", file=sys.stderr)
        return 3
    print(json.dumps(found, indent=2))
    return 0


def _env(args: argparse.Namespace) -> int:
    from multislice_nb.emulator import address as defaults
    from multislice_nb.emulator import client_environment, daemon

    address = daemon.ensure_running()
    variables = client_environment.client_environment(
        address, project=args.project or defaults.DEFAULT_PROJECT, zone=args.zone or defaults.DEFAULT_ZONE
    )
    if args.magic:
        print(client_environment.as_magic(variables))
    else:
        print(client_environment.as_shell(variables, address.home / "gcloud-bin"))
    return 0


def _fault(args: argparse.Namespace) -> int:
    from multislice_nb.emulator import control

    with control.connect() as emulator:
        if args.clear:
            emulator.clear_faults()
        if args.kind:
            emulator.inject(args.kind, **dict(map(parameter, args.parameters)))
        elif not args.clear:
            for kind, text in emulator.fault_kinds().items():
                print(f"{kind:24}{text.splitlines()[0] if text else ''}")
    return 0


def parameter(text: str) -> tuple[str, Any]:
    """A fault's parameter as it is typed, `node=demo-0`; its value is JSON, or else text.

    Raises:
        InvalidRequestError: It has no `=`.
    """
    name, separator, value = text.partition("=")
    if not separator:
        from multislice_nb.errors import InvalidRequestError

        raise InvalidRequestError(f"{text!r} is no parameter.", fix="Write name=value, as in node=demo-0.")
    try:
        return name.replace("-", "_"), json.loads(value)
    except ValueError:
        return name.replace("-", "_"), value
