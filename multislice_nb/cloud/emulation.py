"""The one place that knows of the emulator of this machine: starts it, stops it, shows it, makes it fail."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from multislice_nb.errors import InvalidRequestError

if TYPE_CHECKING:
    from multislice_nb.emulator.address import EmulatorAddress

__all__ = ["control", "has_ended", "misfortune", "running"]


def running() -> EmulatorAddress:
    """Where the emulator is, for a connection of this process; started if it does not run.

    Raises:
        EmulatorError: It did not start.
    """
    from multislice_nb.emulator import daemon

    return daemon.ensure_running(owner_pid=os.getpid())


def has_ended() -> bool:
    """Whether no emulator runs any more, and with it nothing that was on it."""
    from multislice_nb.emulator import daemon

    return not daemon.is_running()


def control(action: str) -> str:
    """Start, stop or look at the emulator.

    Args:
        action: `start`, `stop`, `status`, or `env` for the variables that point other clients at it.

    Returns:
        What there is now, in a few words.

    Raises:
        EmulatorError: It did not start or stop.
        InvalidRequestError: No such action.
    """
    from multislice_nb.emulator import daemon

    if action == "start":
        address = daemon.ensure_running()
        return f"The emulator runs on {address.host}:{address.port} (process {address.pid})."
    if action == "stop":
        ended = daemon.stop()
        return "The emulator was stopped, with all its slices." if ended else "No emulator runs."
    if action == "env":
        return _environment()
    if action != "status":
        raise InvalidRequestError(
            f"The emulator has no {action!r}.", fix="It can start, stop, and tell its status and its env."
        )
    status = daemon.status()
    if status is None:
        return "No emulator runs. %multislice connect starts it."
    return "\n".join(["The emulator runs.", *(f"  {key}: {_shown(value)}" for key, value in status.items())])


def misfortune(kind: str | None = None, *parameters: str, clear: bool = False) -> str:
    """Make something fail on the emulator, or list what can.

    Args:
        kind: Such as `preempt`; None to list those there are.
        parameters: As that kind takes them, each as `node=demo-0`; values are JSON or text.
        clear: Take back every fault that lasts, before.

    Raises:
        EmulatorError: No emulator runs, or that cannot happen now.
        InvalidRequestError: A parameter is not written as name=value.
    """
    from multislice_nb.emulator import cli, control

    with control.connect() as emulator:
        if clear:
            emulator.clear_faults()
        if kind is not None:
            emulator.inject(kind, **dict(map(cli.parameter, parameters)))
            return f"{kind} {' '.join(parameters)}".strip() + ": it is done."
        if clear:
            return "No fault lasts any more."
        return "\n".join(f"{name:24}{text.splitlines()[0]}" for name, text in emulator.fault_kinds().items())


def _environment() -> str:
    from multislice_nb.emulator import address as defaults
    from multislice_nb.emulator import client_environment, daemon

    found = client_environment.client_environment(
        daemon.ensure_running(), project=defaults.DEFAULT_PROJECT, zone=defaults.DEFAULT_ZONE
    )
    return client_environment.as_magic(found)


def _shown(value: object) -> str:
    return str(len(value)) if isinstance(value, list | dict) else str(value)
