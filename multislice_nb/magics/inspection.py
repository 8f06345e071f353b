"""Shift-Tab on a word of a `%multislice` line: the help of what stands there.

IPython is told the name at the cursor alone, and `create` is the name of nothing. The kernel is asked with the whole
cell, so that it is the kernel that answers here, and hands on what is not ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from multislice_nb.magics.completion import VARIABLE
from multislice_nb.magics.grammar import CELL, GROUPS
from multislice_nb.magics.lines import CELL_LINE, LINE, addressed, logical_line
from multislice_nb.magics.reference import argument_help, command_help, overview

if TYPE_CHECKING:
    from collections.abc import Sequence

    from multislice_nb.magics.arguments import Argument, Subcommand

__all__ = ["help_at", "reply"]


def reply(code: str, position: int) -> dict[str, Any] | None:
    """The content of an inspect_reply; None where IPython knows better."""
    text = help_at(code, position)
    if text is None:
        return None
    return {"status": "ok", "found": True, "data": {"text/plain": text}, "metadata": {}}


def help_at(code: str, position: int) -> str | None:
    """The help of the word at a place of a cell: of a flag, else of the subcommand it belongs to.

    Args:
        code: The cell.
        position: Characters before the cursor.
    """
    while position < len(code) and not code[position].isspace():
        position += 1
    before = code[:position]
    row, column = before.count("\n"), position - (before.rfind("\n") + 1)
    line = logical_line(code, row, column)
    cell, own = CELL_LINE.match(line), LINE.match(line)
    match = cell or own
    words = match["rest"].split() if match and match["rest"] else []
    if not words or (own and VARIABLE.search(words[-1])):
        return None
    found = addressed(words)
    if cell and (found is None or found[0].body is None):
        found = CELL, words
    if found is None:
        return overview(words[0]) if words[0] in GROUPS else None
    command, after = found
    argument = _argument(command, after)
    return command_help(command) if argument is None else argument_help(command, argument)


def _argument(command: Subcommand, words: Sequence[str]) -> Argument | None:
    """The flag that the last word is, or is the value of."""
    for distance, word in enumerate(reversed(words[-3:])):
        argument = command.flag(word.partition("=")[0])
        if argument is not None and distance <= argument.words:
            return argument
    return None
