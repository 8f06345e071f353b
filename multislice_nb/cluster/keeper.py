"""Keeps the SSH connections of an attached cluster standing, while a cell runs and between cells.

A connection that drops, as when a laptop sleeps, is made anew with growing pauses. Meanwhile the Cloud TPU API is
asked, so that a worker whose VM is gone is not waited for, and is told from one that cannot be reached.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from multislice_nb import errors

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from multislice_nb.cluster.health import Health
    from multislice_nb.cluster.inventory import Worker
    from multislice_nb.cluster.ssh import Connections

__all__ = ["Gone", "Keeper", "Outage"]

LOOK_EVERY = 0.25
"""Seconds between two looks at whether the connections stand, which costs no traffic."""

FIRST_PAUSE, LONGEST_PAUSE = 0.25, 10.0
"""Seconds between two tries to connect: the first pause, and the one that it grows to."""

FRESH = 1.0
"""Seconds for which what the Cloud TPU API said is not asked for again."""

API_DEADLINE = 10.0
"""Seconds for the Cloud TPU API to answer; it is asked again at the next try."""


@dataclass
class Outage:
    """A worker that cannot be reached now.

    Attributes:
        worker: Which one.
        reason: Why the last try failed; empty before the first.
        since: When the connection was found broken, on the monotonic clock.
        at: The same in seconds since the epoch.
    """

    worker: Worker
    reason: str = ""
    since: float = field(default_factory=time.monotonic)
    at: float = field(default_factory=time.time)

    @property
    def seconds(self) -> float:
        """How long it has lasted."""
        return time.monotonic() - self.since

    def __str__(self) -> str:
        when = time.strftime("%H:%M:%S", time.localtime(self.at))
        reason = f" ({self.reason})" if self.reason else ""
        return f"R{str(self.worker)[1:]} has not been reached over SSH since {when}{reason}"


@dataclass(frozen=True, slots=True)
class Gone:
    """A worker whose engine is gone with its VM.

    Attributes:
        reason: What happened to it, as `node demo-1 is PREEMPTED`.
        at: When it was noticed, in seconds since the epoch.
    """

    reason: str
    at: float

    def __str__(self) -> str:
        return f"{self.reason} ({max(0.0, time.time() - self.at):.0f} s ago)"


class Keeper:
    """Watches and mends the connections of one gang.

    Args:
        connections: Those to keep.
        workers: All workers.
        vanished: Tells what became of our processes on a worker that was reached again; empty if they live.
        rejoin: Makes the link to the controller anew, once worker 0 was reached again.
        ask: Asks the Cloud TPU API; None where there is none to ask.

    Attributes:
        outages: By rank, who cannot be reached now.
        gone: By rank, who will not come back to this gang.
        health: What the Cloud TPU API said last, if it was asked.
    """

    def __init__(
        self,
        connections: Connections,
        workers: Sequence[Worker],
        *,
        vanished: Callable[[int], Awaitable[str]],
        rejoin: Callable[[], Awaitable[None]],
        ask: Callable[[], Awaitable[Health]] | None,
    ) -> None:
        self._connections = connections
        self._workers = workers
        self._vanished = vanished
        self._rejoin = rejoin
        self._ask = ask
        self._asking: asyncio.Task[None] | None = None
        self._asked_at = float("-inf")
        self._task: asyncio.Task[None] | None = None
        self._mending: dict[int, asyncio.Task[None]] = {}
        self._reopened: dict[int, int] = {}
        self.outages: dict[int, Outage] = {}
        self.gone: dict[int, Gone] = {}
        self.health: Health | None = None

    def start(self) -> None:
        """Watch from now on, with nobody gone."""
        self.gone.clear()
        self._reopened = {worker.rank: self._connections.reopened(worker.rank) for worker in self._workers}
        if self._task is None:
            self._task = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        """Watch no more."""
        tasks = [task for task in (self._task, self._asking, *self._mending.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._task = self._asking = None
        self._mending.clear()
        self.outages.clear()

    async def _watch(self) -> None:
        while True:
            for worker in self._workers:
                rank = worker.rank
                if rank not in self.outages and rank not in self.gone and not self._stands(rank):
                    self.outages[rank] = Outage(worker)
                    self._mending[rank] = asyncio.create_task(self._mend(rank))
            await asyncio.sleep(LOOK_EVERY)

    def _stands(self, rank: int) -> bool:
        """Whether the connection is the one that was there at the last look: others may have made another."""
        return self._connections.is_open(rank) and self._connections.reopened(rank) == self._reopened[rank]

    async def _mend(self, rank: int) -> None:
        """Try until the worker is reached or known to be gone."""
        outage, pause = self.outages[rank], FIRST_PAUSE
        while rank not in self.gone:
            try:
                await self._connections.reopen(rank)
                self._reopened[rank] = self._connections.reopened(rank)
                vanished = await self._vanished(rank)
                if vanished:
                    self.gone[rank] = Gone(self.trouble(rank) or vanished, outage.at)
                    break
                if rank == 0:
                    await self._rejoin()
                break
            except errors.MultisliceError as error:
                outage.reason = str(error.__cause__ or error.what)
            self.inquire()
            await asyncio.sleep(pause)
            pause = min(pause * 1.7, LONGEST_PAUSE)
            self._judge(rank)
        self.outages.pop(rank, None)
        self._mending.pop(rank, None)

    def _judge(self, rank: int) -> None:
        """Count a worker as gone if the Cloud TPU API says so of its slice since it cannot be reached."""
        outage = self.outages[rank]
        trouble = self.trouble(rank) if self._asked_at >= outage.since else ""
        if trouble:
            self.gone[rank] = Gone(trouble, outage.at)

    def trouble(self, rank: int) -> str:
        """What the Cloud TPU API said last of a worker's slice; empty where that was well, or nothing."""
        return self.health.trouble(self._workers[rank].slice_id) if self.health is not None else ""

    # The Cloud TPU API

    def inquire(self) -> None:
        """Have the Cloud TPU API asked, unless it just was. Does not wait."""
        fresh = time.monotonic() - self._asked_at < FRESH
        if self._ask is None or fresh or (self._asking is not None and not self._asking.done()):
            return
        self._asking = asyncio.create_task(self._inquire(self._ask))

    async def _inquire(self, ask: Callable[[], Awaitable[Health]]) -> None:
        asked_at = time.monotonic()
        # A service that fails or is slow tells nothing, and nothing waits for it.
        with contextlib.suppress(errors.CloudError, TimeoutError):
            async with asyncio.timeout(API_DEADLINE):
                self.health = await ask()
                self._asked_at = asked_at

    async def inquired(self, deadline: float) -> Health | None:
        """What the Cloud TPU API says now, or None if it does not say so until `deadline` (monotonic)."""
        self.inquire()
        if self._asking is not None and not self._asking.done():
            await asyncio.wait({self._asking}, timeout=max(0.0, deadline - time.monotonic()))
        return self.health if time.monotonic() - self._asked_at < API_DEADLINE else None
