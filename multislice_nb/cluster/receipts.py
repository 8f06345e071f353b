"""Telling the workers that a notebook has a cell's reply, so that the next notebook is not offered it again.

Only the newest cell is ever offered. So a receipt can wait a moment: the next cell most often makes it needless,
and then a cell costs one message to each worker and not two.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import weakref
from typing import TYPE_CHECKING

from multislice_nb._portal import sync

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from multislice_nb.cluster.link import Link, Pending

__all__ = ["Receipts"]

AFTER = 0.3
"""Seconds from a reply to its receipt."""

PATIENCE = 2.0
"""Seconds that a detach waits for the workers to take the last receipt."""


class Receipts:
    """The receipt that is owed, if one is.

    Args:
        link: Gives the link to the workers, as long as there is one.
    """

    def __init__(self, link: Callable[[], Link | None]) -> None:
        self._link = link
        self._owed: tuple[str, tuple[int, ...]] | None = None
        self._timer: asyncio.TimerHandle | None = None
        atexit.register(_give_at_exit, weakref.ref(self))

    def owe(self, cell_id: str, ranks: Iterable[int]) -> None:
        """A cell's reply has come from these ranks."""
        self._owed = (cell_id, tuple(ranks))
        self._timer = asyncio.get_running_loop().call_later(AFTER, self._send)

    def supersede(self, ranks: Iterable[int]) -> None:
        """Another cell starts on these ranks: who does not run it still needs to be told of the one before."""
        if self._timer is not None:
            self._timer.cancel()
        if self._owed is not None and set(self._owed[1]) <= set(ranks):
            self._owed = None
        self._send()

    def _send(self) -> list[Pending]:
        (owed, self._owed), link = (self._owed, None), self._link()
        if owed is None or link is None:
            return []
        sent = list(link.submit(owed[1], "acknowledge", owed[0]).values())
        for pending in sent:
            pending.forget()
        return sent

    async def give(self) -> None:
        """Send what is owed now, and wait until it has arrived."""
        sent = self._send()
        with contextlib.suppress(TimeoutError):  # a worker that is busy still will read it
            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(*(pending.reply() for pending in sent), return_exceptions=True)


def _give_at_exit(found: weakref.ref[Receipts]) -> None:
    receipts = found()
    if receipts is not None and receipts._owed is not None:  # noqa: SLF001 - it is this module's own
        sync(receipts.give)
