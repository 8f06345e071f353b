"""Where the cursor is: lines of a cell that are ours, and the subcommand that their words begin with."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from multislice_nb.magics.grammar import subcommand

if TYPE_CHECKING:
    from collections.abc import Sequence

    from multislice_nb.magics.arguments import Subcommand

__all__ = ["CELL_LINE", "LINE", "addressed", "logical_line"]

LINE = re.compile(r"\s*(?:[\w.\[\]'\",\s]+=\s*)?%multislice(?P<rest>\s.*)?$", re.DOTALL)
CELL_LINE = re.compile(r"\s*%%multislice(?P<rest>\s.*)?$", re.DOTALL)


def logical_line(text: str, row: int, column: int) -> str:
    """The line up to the cursor, with those before it that end in a backslash; a cell magic's is the first."""
    lines = text.split("\n")
    line = lines[row][:column]
    while row > 0 and lines[row - 1].endswith("\\"):
        row -= 1
        line = lines[row][:-1] + " " + line
    # `%%multislice` means what it means only at the top of a cell.
    at_top = not "".join(lines[:row]).strip()
    return "" if line.lstrip().startswith("%%") and not at_top else line


def addressed(words: Sequence[str]) -> tuple[Subcommand, Sequence[str]] | None:
    """The subcommand that words begin with, of two or one, and the words after it."""
    for count in (2, 1):
        command = subcommand(" ".join(words[:count]))
        if command is not None and len(words) >= count:
            return command, words[count:]
    return None
