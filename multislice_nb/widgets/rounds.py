"""Rounds of asking the workers how much of them is used: one for all panels, none while no grid is shown."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from multislice_nb import _portal
from multislice_nb.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from multislice_nb.cluster import UsageReport
    from multislice_nb.widgets.loop import KernelLoop
    from multislice_nb.widgets.session import Session

__all__ = ["Rounds", "rounds_of"]

EVERY = 5.0
"""Seconds between two rounds at least."""
SHARE = 10
"""A round is not begun before so many times the time that the last one took: it must not be felt on the workers."""


class Rounds:
    """Asks the clusters that somebody looks at, one round after another.

    Args:
        session: Whose clusters.

    Attributes:
        last: By cluster, its last report.
        count: Rounds so far.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._watchers: dict[object, tuple[str, KernelLoop, Callable[[], None]]] = {}
        self._task: Future[None] | None = None
        self.last: dict[str, UsageReport] = {}
        self.count = 0

    @property
    def running(self) -> bool:
        """Whether it asks."""
        return self._task is not None and not self._task.done()

    def watch(self, who: object, name: str, loop: KernelLoop, changed: Callable[[], None]) -> None:
        """Have a cluster asked, and a panel told of it on its own loop."""
        self._watchers[who] = (name, loop, changed)
        if not self.running:
            self._task = asyncio.run_coroutine_threadsafe(self._run(), _portal.loop())

    def unwatch(self, who: object) -> None:
        """A panel shows no grid any more; without any the asking stops."""
        self._watchers.pop(who, None)
        if not self._watchers and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        while True:
            began = time.monotonic()
            names = {name for name, _, _ in tuple(self._watchers.values())}
            await asyncio.gather(*map(self._ask, names))
            self.count += 1
            for _, loop, changed in tuple(self._watchers.values()):
                loop.call(changed)
            await asyncio.sleep(max(EVERY, SHARE * (time.monotonic() - began)))

    async def _ask(self, name: str) -> None:
        try:
            cluster = self._session.cluster(name)
        except ClusterError:  # nobody is attached to it, and so there is nobody to ask
            return
        self.last[name] = await cluster.environment.ausage()


_rounds: dict[int, Rounds] = {}


def rounds_of(session: Session) -> Rounds:
    """The rounds that all panels of a session share."""
    return _rounds.setdefault(id(session), Rounds(session))
