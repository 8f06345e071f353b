"""The command line: `python -m multislice_nb demo`, `emulator` and `job`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from multislice_nb import __version__, demo, errors
from multislice_nb.emulator import cli as emulator_cli
from multislice_nb.jobs import cli as jobs_cli

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit status, 1 after an error that was told in two sentences."""
    parser = argparse.ArgumentParser(prog="multislice_nb", description=__doc__)
    parser.add_argument("--version", action="version", version=f"multislice_nb {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    demo.add_parser(commands)
    emulator_cli.add_parser(commands)
    jobs_cli.add_parser(commands)
    arguments = parser.parse_args(argv)
    run = {"demo": demo.run, "emulator": emulator_cli.run, "job": jobs_cli.run}[arguments.command]
    try:
        return run(arguments)
    except errors.MultisliceError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
