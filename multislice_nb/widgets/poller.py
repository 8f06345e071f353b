"""One look for all open panels at a time; none while no panel is shown."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from multislice_nb import _portal
from multislice_nb.widgets.repeated import Repeated, shared
from multislice_nb.widgets.snapshot import Snapshot, take

if TYPE_CHECKING:
    from collections.abc import Callable

    from multislice_nb.widgets.loop import KernelLoop
    from multislice_nb.widgets.session import Session

__all__ = ["Poller", "poller_of"]

_EMULATOR = (0.5, 2.0)
_GOOGLE = (3.0, 20.0)
"""Seconds between looks: while something changes, and when nothing has for long."""
_GROWTH = 1.3


class Poller(Repeated["tuple[KernelLoop, Callable[[Snapshot], None]]"]):
    """Looks again and again, for those who subscribed.

    Args:
        session: Whose queued resources and clusters.
    """

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._hurry: asyncio.Event | None = None
        self.last: Snapshot | None = None
        self.looks = 0

    def subscribe(self, who: object, loop: KernelLoop, show: Callable[[Snapshot], None]) -> None:
        """Have every new look shown, on a panel's own loop. Subscribing again changes nothing."""
        self._subscribers.setdefault(who, (loop, show))
        if self.running:
            self.hurry()
        else:
            self._start()

    def hurry(self) -> None:
        """Look now, since something was just done."""

        def set_it() -> None:
            if self._hurry is not None:
                self._hurry.set()

        _portal.loop().call_soon_threadsafe(set_it)

    async def _run(self) -> None:
        self._hurry = hurry = asyncio.Event()
        pause, before = 0.0, None
        while True:
            snapshot = await self._look()
            self.last, self.looks = snapshot, self.looks + 1
            for loop, show in tuple(self._subscribers.values()):
                loop.call(lambda show=show, snapshot=snapshot: show(snapshot))  # type: ignore[misc]
            cloud = self._session.cloud
            shortest, longest = _EMULATOR if cloud is None or cloud.is_emulator else _GOOGLE
            now = _shape(snapshot)
            pause = min(longest, max(shortest, pause * _GROWTH)) if now == before else shortest
            before = now
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await hurry.wait()
            hurry.clear()

    async def _look(self) -> Snapshot:
        try:
            return await take(self._session)
        except Exception as error:  # noqa: BLE001 - shown in the panel, which would else stand still and say nothing
            return Snapshot(problem=f"{type(error).__name__}: {error}")


def _shape(snapshot: Snapshot) -> tuple[object, ...]:
    """What is the same while nothing changes."""
    states = tuple((status.name, status.state) for status in snapshot.queued_resources)
    nodes = tuple(node.state for own in snapshot.nodes.values() for node in own)
    return states, nodes, tuple((one.name, tuple(w.state for w in one.workers)) for one in snapshot.clusters)


def poller_of(session: Session) -> Poller:
    """The poller that all panels of a session share."""
    return shared(Poller, session)
