"""A sweep or a notebook while it runs: a line, and for a sweep a chart, updated in place for who watches.

Where nobody watches, each milestone is a printed line. Nothing here has a thread: outputs change when there is
something to say, in the thread of the cell that called it. What stands there at the end is ordinary output, which
the notebook keeps.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from multislice_nb._live import Line, Output
from multislice_nb._watched import is_watched

if TYPE_CHECKING:
    from collections.abc import Callable

    from multislice_nb.experiments.progress import SweepProgress

__all__ = ["LiveChart", "Progress", "shower", "sweep_shower"]

CHART_INTERVAL = 1.0
"""Seconds between updates of the chart, at least: it costs a tenth of a second to draw."""


class Progress(Protocol):
    """How far something is: `str` tells it in a line."""

    @property
    def milestone(self) -> str | None:
        """What a log says of it, once; None for nothing yet."""


def shower() -> Callable[[Progress], None]:
    """A callback that shows progress: a line that changes where somebody watches, else a line for each milestone."""
    line = Line(watched=_watched())
    return lambda progress: line.show(str(progress), step=progress.milestone)


def sweep_shower(line: Line | None = None) -> Callable[[SweepProgress], None]:
    """The same for a sweep, with a chart below the line that changes.

    Args:
        line: Where it is shown; one of its own if None.
    """
    line, chart = line or Line(watched=_watched()), LiveChart()

    def show(progress: SweepProgress) -> None:
        # Not each milestone: configurations that are skipped follow one another at once.
        line.show(str(progress), step=progress.milestone, now=progress.done == progress.total)
        if line.watched:
            chart.show(progress)

    return show


class LiveChart:
    """TFLOP/s per chip of what a sweep has measured so far. It appears with the first measurement."""

    def __init__(self) -> None:
        self._output = Output()
        self._drawn_at = float("-inf")
        self._points = 0

    def show(self, progress: SweepProgress) -> None:
        """Draw it again if there is something new, but not more often than once in a while until the end."""
        ends = [row["status"] for row in progress.results.rows]
        points, over = ends.count("ok") + ends.count("oom"), progress.done == progress.total
        soon = time.monotonic() - self._drawn_at < CHART_INTERVAL
        if "ok" not in ends or points == self._points or (soon and not over):
            return
        # None of pyplot's figures: nothing keeps it once it is drawn.
        self._output.put(progress.results.plot_tflops())
        self._drawn_at, self._points = time.monotonic(), points


def _watched() -> bool:
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    return is_watched(get_ipython())
