"""Whether the page that shows a panel is still there.

A browser that is closed says nothing: views stay counted and comms open, so that the panel would poll for nobody, and
its updates would keep a server from ending a kernel that is idle. The core widget Play answers: told to play, it counts
to its end in the page and tells that it stopped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

if TYPE_CHECKING:
    from collections.abc import Callable

    from multislice_nb.widgets.loop import KernelLoop

__all__ = ["Pulse"]

EVERY = 30.0
"""Seconds between two questions."""
PATIENCE = 5
"""Questions without an answer after which nobody is there: browsers let a page that is hidden answer once a minute."""
LONGEST = 1800.0
"""Seconds between two questions at most, once nobody was there: a laptop that wakes up shows its page again."""


class Pulse:
    """Asks a page now and then, while there should be one.

    Args:
        loop: The kernel's, whose thread alone uses this; while that runs a cell, nothing is asked and nobody is missed.
        changed: Called when nobody is there any more, and when somebody is there again.

    Attributes:
        view: What answers, to be put on the page; it takes no room.
        there: Whether somebody is there, as far as is known.
    """

    def __init__(self, loop: KernelLoop, changed: Callable[[], None]) -> None:
        self._loop = loop
        self._changed = changed
        self._timer: Any = None
        self._asking = False
        self._answers = False
        self._missed = 0
        self.there = True
        self.view = widgets.Play(min=0, max=1, interval=50, layout=widgets.Layout(display="none"))
        self.view.observe(self._stopped, "playing")

    def start(self) -> None:
        """Ask from now on, since there is a view."""
        self.there, self._missed = True, 0
        self._next(EVERY)

    def stop(self) -> None:
        """Ask no more, since no view is counted."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    def seen(self) -> None:
        """The page gave a sign of life."""
        if self._timer is None:
            return  # nobody asked
        was_there = self.there
        self.start()
        if not was_there:
            self._changed()

    def _next(self, seconds: float) -> None:
        self.stop()
        self._timer = self._loop.later(seconds, self._ask)

    def _ask(self) -> None:
        self._missed += 1
        # A front end that never answered may have no such widget.
        if self._answers and self.there and self._missed > PATIENCE:
            self.there = False
            self._changed()
        self._asking = True
        self.view.playing = False  # a page that was loaded meanwhile takes an old question for its own state
        self.view.playing = True
        self._asking = False
        self._next(EVERY if self.there else min(LONGEST, EVERY * 2 ** (self._missed - PATIENCE)))

    def _stopped(self, change: Any) -> None:
        if not self._asking and not change["new"]:
            self._answers = True
            self.seen()
