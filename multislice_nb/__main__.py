"""The command line: `python -m multislice_nb demo` and `python -m multislice_nb emulator`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from multislice_nb import __version__, demo, errors
from multislice_nb.emulator import cli as emulator_cli

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
    arguments = parser.parse_args(argv)
    try:
        return demo.run(arguments) if arguments.command == "demo" else emulator_cli.run(arguments)
    except errors.MultisliceError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted; nothing was left running.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
