"""A sweep or a notebook while it runs: a line, and for a sweep a chart, updated in place for who watches.

Where nobody watches, each milestone is a printed line. Nothing here has a thread: outputs change when there is
something to say, in the thread of the cell that called it. What stands there at the end is ordinary output, which
the notebook keeps.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

from multislice_nb._watched import is_watched

if TYPE_CHECKING:
    from collections.abc import Callable

    from multislice_nb.experiments.progress import SweepProgress

__all__ = ["LiveChart", "Progress", "shower", "sweep_shower"]

LINE_INTERVAL = 0.2
"""Seconds between updates of the line, at least: a browser takes five a second well."""

CHART_INTERVAL = 1.0
"""The same for the chart, which costs a tenth of a second to draw."""


class Progress(Protocol):
    """How far something is: `str` tells it in a line."""

    @property
    def milestone(self) -> str | None:
        """What a log says of it, once; None for nothing yet."""


def shower() -> Callable[[Progress], None]:
    """A callback that shows progress: a line that changes where somebody watches, else a line for each milestone."""
    if not _watched():
        return _printer()
    line, said = _Line(), ""

    def show(progress: Progress) -> None:
        nonlocal said
        before, said = said, progress.milestone or ""
        line.show(progress, certainly=said != before)

    return show


def sweep_shower() -> Callable[[SweepProgress], None]:
    """The same for a sweep, with a chart below the line that changes."""
    if not _watched():
        return _printer()
    line, chart = _Line(), LiveChart()

    def show(progress: SweepProgress) -> None:
        # Not each milestone: configurations that are skipped follow one another at once.
        line.show(progress, certainly=progress.done == progress.total)
        chart.show(progress)

    return show


class LiveChart:
    """TFLOP/s per chip of what a sweep has measured so far. It appears with the first measurement."""

    def __init__(self) -> None:
        self._output = _Output()
        self._drawn_at = float("-inf")
        self._points = 0

    def show(self, progress: SweepProgress) -> None:
        """Draw it again if there is something new, but not more often than once in a while until the end."""
        ends = [row["status"] for row in progress.results.rows]
        points, over = ends.count("ok") + ends.count("oom"), progress.done == progress.total
        soon = time.monotonic() - self._drawn_at < CHART_INTERVAL
        if "ok" not in ends or points == self._points or (soon and not over):
            return
        self._output.put(
            progress.results.plot_tflops()
        )  # none of pyplot's: nothing keeps it once it is drawn
        self._drawn_at, self._points = time.monotonic(), points


class _Line:
    """One line, replaced as a whole."""

    def __init__(self) -> None:
        self._output = _Output()
        self._drawn_at = float("-inf")

    def show(self, progress: Progress, *, certainly: bool) -> None:
        """Show how far it is, unless the last time is not long ago."""
        now = time.monotonic()
        if now - self._drawn_at >= LINE_INTERVAL or certainly:
            self._drawn_at = now
            self._output.put({"text/plain": str(progress)}, raw=True)


class _Output:
    """One output of a cell, replaced as a whole."""

    def __init__(self) -> None:
        self._handle: Any = None

    def put(self, content: object, *, raw: bool = False) -> None:
        """Show something, or a raw bundle of it, in the place of what was there."""
        from IPython.display import display

        if self._handle is None:
            self._handle = display(content, raw=raw, display_id=True)
        else:
            self._handle.update(content, raw=raw)


def _printer() -> Callable[[Progress], None]:
    said: str | None = None

    def show(progress: Progress) -> None:
        nonlocal said
        if progress.milestone is not None and progress.milestone != said:
            said = progress.milestone
            print(said, flush=True)

    return show


def _watched() -> bool:
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    return is_watched(get_ipython())
