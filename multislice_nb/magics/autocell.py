"""The mode in which every cell runs on the workers until it is turned off."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["Autocell"]


class Autocell:
    """Puts `%%multislice` before every cell.

    Cells that begin with `%`, `!` or `?` are left as they are, so that it can be turned off.

    Args:
        shell: Whose cells.
    """

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell

    @property
    def on(self) -> bool:
        """Whether cells go to the workers."""
        return self._send in self._shell.input_transformers_cleanup

    def turn(self, *, on: bool) -> None:
        """Turn it on or off."""
        if on and not self.on:
            self._shell.input_transformers_cleanup.append(self._send)
        elif not on and self.on:
            self._shell.input_transformers_cleanup.remove(self._send)

    @staticmethod
    def banner(name: str, workers: int) -> str:
        """What stands over the output of every cell while it is on."""
        return f"▶ AUTOCELL: on {workers} workers of {name}, not here · %multislice autocell off"

    @staticmethod
    def _send(lines: list[str]) -> list[str]:
        first = next((line.lstrip() for line in lines if line.strip()), "")
        if not first or first[0] in "%!?" or first.rstrip().endswith("?"):
            return lines
        return ["%%multislice\n", *lines]
