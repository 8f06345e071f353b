"""The command line: `python -m multislice_nb demo`, `emulator`, and the magics that need no kernel."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from multislice_nb import __version__, demo, errors
from multislice_nb.emulator import cli as emulator_cli

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

_OURS = ("demo", "emulator")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Returns:
        Its exit status: 1 after an error that was told in two sentences, 2 after a wrong word.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return _run(words)
    except errors.MagicError as error:
        print(error, file=sys.stderr)
        return 2
    except errors.MultisliceError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as stop:
        print(f"Interrupted: {stop}" if str(stop) else "Interrupted.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `… job logs train | head`
        # What is left in the buffer would break again when Python flushes it at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _run(words: Sequence[str]) -> int:
    if words and words[0] not in _OURS and not words[0].startswith("-"):
        from multislice_nb.magics import command_line

        status = command_line.run(words)
    else:
        arguments = _parser(words).parse_args(words)
        status = {"demo": demo.run, "emulator": emulator_cli.run}[arguments.command](arguments)
    sys.stdout.flush()  # here a reader that is gone is told from an error, at Python's end it is not
    return status


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m multislice_nb",
        description="Cloud TPU Multislice from a shell.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"multislice_nb {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    demo.add_parser(commands)
    emulator_cli.add_parser(commands)
    if not words or words[0] not in _OURS:
        from multislice_nb.magics import command_line

        parser.epilog = (
            f"and, as in a notebook after %multislice, each with --help:\n\n{command_line.overview()}"
        )
    return parser


if __name__ == "__main__":
    sys.exit(main())
