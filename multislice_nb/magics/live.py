"""A line that says how far something is: updated in place where somebody watches, else one line per step."""

from __future__ import annotations

import time
from typing import Any

__all__ = ["INTERVAL", "Line"]

INTERVAL = 0.2
"""Seconds between two updates of one output: a browser that gets more than five a second falls behind."""


class Line:
    """One output that changes while a call runs. Used in the thread of the cell alone.

    Args:
        watched: Whether it changes in place; otherwise each step is printed once.
        interval: Seconds between two updates that are not steps.
    """

    def __init__(self, *, watched: bool, interval: float = INTERVAL) -> None:
        self.watched = watched
        self._interval = interval
        self._handle: Any = None
        self._step: str | None = None
        self._text = ""
        self._drawn_at = float("-inf")

    def show(self, text: str, *, step: str | None = None) -> None:
        """Show how far it is.

        Args:
            text: What stands there now.
            step: What a log says of it; printed when it is another than before. None for what no log says.
        """
        is_new = step is not None and step != self._step
        if step is not None:
            self._step = step
        if not self.watched:
            if is_new:
                print(step, flush=True)
            return
        if text != self._text and (is_new or time.monotonic() - self._drawn_at >= self._interval):
            self._draw(text)

    def end(self, text: str = "") -> None:
        """Show how it ended, in the place where it stands; where each step was printed, below them."""
        if self.watched:
            if text != self._text or self._handle is None:
                self._draw(text)
        elif text and text != self._step:
            print(text, flush=True)

    def _draw(self, text: str) -> None:
        from IPython.display import display

        bundle = {"text/plain": text}
        if self._handle is None:
            if not text:
                return
            self._handle = display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)
        self._text, self._drawn_at = text, time.monotonic()
