"""Rounds of asking the workers how much of them is used: one for all panels, none while no grid is shown."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from multislice_nb.errors import ClusterError
from multislice_nb.widgets.repeated import Repeated, shared

if TYPE_CHECKING:
    from collections.abc import Callable

    from multislice_nb.cluster import UsageReport
    from multislice_nb.widgets.loop import KernelLoop
    from multislice_nb.widgets.session import Session

__all__ = ["Rounds", "rounds_of"]

EVERY = 5.0
"""Seconds between two rounds at least."""
SHARE = 10
"""A round is not begun before so many times the time that the last one took: it must not be felt on the workers."""


class Rounds(Repeated["tuple[str, KernelLoop, Callable[[], None]]"]):
    """Asks the clusters that somebody looks at, one round after another.

    Args:
        session: Whose clusters.

    Attributes:
        last: By cluster, its last report.
        count: Rounds so far.
    """

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.last: dict[str, UsageReport] = {}
        self.count = 0

    def subscribe(self, who: object, name: str, loop: KernelLoop, changed: Callable[[], None]) -> None:
        """Have a cluster asked, and a panel told of it on its own loop."""
        self._subscribers[who] = (name, loop, changed)
        self._start()

    async def _run(self) -> None:
        while True:
            began = time.monotonic()
            names = {name for name, _, _ in tuple(self._subscribers.values())}
            await asyncio.gather(*map(self._ask, names))
            self.count += 1
            for _, loop, changed in tuple(self._subscribers.values()):
                loop.call(changed)
            await asyncio.sleep(max(EVERY, SHARE * (time.monotonic() - began)))

    async def _ask(self, name: str) -> None:
        try:
            cluster = self._session.cluster(name)
        except ClusterError:  # nobody is attached to it, and so there is nobody to ask
            return
        self.last[name] = await cluster.environment.ausage()


def rounds_of(session: Session) -> Rounds:
    """The rounds that all panels of a session share."""
    return shared(Rounds, session)
