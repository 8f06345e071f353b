"""What happens to a cell's lines before IPython reads them."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["AskedFor", "Autocell", "EmptyCell"]


class EmptyCell:
    """Gives `%%multislice` an empty line to run where nothing stands below it.

    Without it IPython refuses the cell by itself, with a UsageError that notebook runners let pass, and
    `%%multislice --help` alone could not be asked for.
    """

    has_side_effects = True
    """A terminal asks IPython whether a cell is complete; this would answer before its first line is written."""

    def __call__(self, lines: list[str]) -> list[str]:
        """The lines of a cell, with one more where it needs one."""
        alone = len(lines) == 1 and re.match(r"%%multislice(?:\s|$)", lines[0])
        return [*lines, "\n"] if alone else lines


class AskedFor:
    """Reads `%multislice create?` as asking for that subcommand's help; IPython would look for a variable `create`."""

    def __call__(self, lines: list[str]) -> list[str]:
        """The lines of a cell."""
        asked = re.fullmatch(r"\s*%multislice\s+([a-z-]+(?:\s+[a-z-]+)?)\s*\?{1,2}\s*", "".join(lines))
        if asked is None:
            return lines
        from multislice_nb.magics.grammar import GROUPS, subcommand

        words = " ".join(asked[1].split())
        return [f"%multislice {words} --help\n"] if subcommand(words) or words in GROUPS else lines


class Autocell:
    """Puts `%%multislice` before every cell while it is on, which it is until it is turned off.

    Cells that begin with `%`, `!` or `?`, or with `name?`, are left as they are, so that it can be turned off.

    Args:
        shell: Whose cells.
    """

    has_side_effects = True
    """A cell is complete when its own lines are, whatever is put before them."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._paused = False

    @property
    def on(self) -> bool:
        """Whether cells go to the workers."""
        return self in self._shell.input_transformers_cleanup

    def turn(self, *, on: bool) -> None:
        """Turn it on or off."""
        if on and not self.on:
            self._shell.input_transformers_cleanup.append(self)
        elif not on and self.on:
            self._shell.input_transformers_cleanup.remove(self)

    @staticmethod
    def banner(name: str, workers: int) -> str:
        """What stands over the output of every cell while it is on."""
        return f"▶ AUTOCELL: on {workers} workers of {name}, not here · %multislice autocell off"

    def __call__(self, lines: list[str]) -> list[str]:
        """The lines of a cell, for the workers."""
        first = next((line.strip() for line in lines if line.strip()), "")
        if self._paused or not first or first[0] in "%!?" or _asks(first):
            return lines
        return ["%%multislice\n", *lines]

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Run a cell here meanwhile, also while it is on."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False


def _asks(line: str) -> bool:
    """Whether IPython reads a line as asking for help, as `name?`; a comment or a text may end so too."""
    from IPython.core.inputtransformer2 import HelpEnd, make_tokens_by_line

    return line.endswith("?") and HelpEnd.find(make_tokens_by_line([f"{line}\n"])) is not None
