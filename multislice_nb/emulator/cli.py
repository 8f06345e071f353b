"""`python -m multislice_nb emulator start|stop|status`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from multislice_nb.emulator import daemon

if TYPE_CHECKING:
    import argparse

__all__ = ["add_parser", "run"]


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `emulator` to the command line."""
    parser = commands.add_parser("emulator", help="start, stop or look at the Cloud TPU emulator on this machine")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("start", help="start it, unless it runs already")
    actions.add_parser("stop", help="end it, with everything that runs on it")
    actions.add_parser("status", help="say what runs on it")


def run(arguments: argparse.Namespace) -> int:
    """Do what was asked; the exit status is 1 where `status` finds no emulator."""
    if arguments.action == "start":
        address = daemon.ensure_running()
        print(f"The Cloud TPU emulator runs at {address.host}:{address.port}.")
    elif arguments.action == "stop":
        print("The Cloud TPU emulator was stopped." if daemon.stop() else "No Cloud TPU emulator runs here.")
    else:
        status = daemon.status()
        print(json.dumps(status, indent=2) if status else "No Cloud TPU emulator runs here.")
        return 0 if status else 1
    return 0
