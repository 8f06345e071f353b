"""Outputs that change while a call runs, and a line that says how far it is: without a watcher, one line per step."""

from __future__ import annotations

import time
from typing import Any

__all__ = ["INTERVAL", "Line", "Output"]

INTERVAL = 0.2
"""Seconds between two updates of one output: a browser that gets more than five a second falls behind."""


class Output:
    """One output of a cell, replaced as a whole. Used in the thread of the cell alone."""

    def __init__(self) -> None:
        self._handle: Any = None

    @property
    def is_shown(self) -> bool:
        """Whether it has appeared."""
        return self._handle is not None

    def put(self, content: object, *, raw: bool = False) -> None:
        """Show something, or a raw bundle of it, in the place of what was there."""
        from IPython.display import display

        if self._handle is None:
            self._handle = display(content, raw=raw, display_id=True)
        else:
            self._handle.update(content, raw=raw)


class Line:
    """One output that changes while a call runs. Used in the thread of the cell alone.

    Args:
        watched: Whether it changes in place; otherwise each step is printed once.
        interval: Seconds between two updates that are not steps.
    """

    def __init__(self, *, watched: bool, interval: float = INTERVAL) -> None:
        self.watched = watched
        self._interval = interval
        self._output = Output()
        self._step: str | None = None
        self._text = ""
        self._drawn_at = float("-inf")

    def show(self, text: str, *, step: str | None = None, now: bool | None = None) -> None:
        """Show how far it is.

        Args:
            text: What stands there now.
            step: What a log says of it; printed when it is another than before. None for what no log says.
            now: Whether to update it though the last time was not long ago; for another step if None.
        """
        is_new = step is not None and step != self._step
        if step is not None:
            self._step = step
        if not self.watched:
            if is_new:
                print(step, flush=True)
            return
        if text != self._text and (
            (is_new if now is None else now) or time.monotonic() - self._drawn_at >= self._interval
        ):
            self._draw(text)

    def end(self, text: str = "") -> None:
        """Show how it ended, in the place where it stands; where each step was printed, below them."""
        if self.watched:
            if text != self._text or not self._output.is_shown:
                self._draw(text)
        elif text and text != self._step:
            print(text, flush=True)

    def _draw(self, text: str) -> None:
        if not text and not self._output.is_shown:
            return
        self._output.put({"text/plain": text}, raw=True)
        self._text, self._drawn_at = text, time.monotonic()
