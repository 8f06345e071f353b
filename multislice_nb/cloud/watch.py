"""Watching queued resources: one list call per interval and zone, however many are watched.

The interval grows while nothing changes and falls back when something does, with jitter so that many
notebooks do not ask in step.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from multislice_nb.errors import CloudError, MultisliceError, NotFoundError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from multislice_nb.cloud.provider import Provider
    from multislice_nb.cloud.status import QueuedResourceStatus

__all__ = ["EMULATOR_PACE", "GOOGLE_PACE", "Pace", "Watchtower"]


@dataclass(frozen=True, slots=True)
class Pace:
    """How often to ask, in seconds: `first` after a change, then `growth` times longer up to `last`."""

    first: float
    last: float
    growth: float = 1.4
    jitter: float = 0.1

    def after(self, pause: float) -> float:
        """The pause that follows one in which nothing changed."""
        return min(pause * self.growth, self.last)

    def spread(self, pause: float) -> float:
        """The pause with its jitter."""
        return pause * random.uniform(1 - self.jitter, 1 + self.jitter)  # noqa: S311 - not a secret


EMULATOR_PACE = Pace(first=0.1, last=1.0)
GOOGLE_PACE = Pace(first=3.0, last=20.0)


class Watchtower:
    """Looks at the queued resources of one zone for all who watch any of them.

    Args:
        provider: Whom to ask.
        zone: Where they are.
        pace: How often.
        observe: Called with every list's statuses; what it returns is handed on in their place.
    """

    def __init__(
        self,
        provider: Provider,
        zone: str,
        pace: Pace,
        observe: Callable[[tuple[QueuedResourceStatus, ...]], tuple[QueuedResourceStatus, ...]] = lambda s: s,
    ) -> None:
        self._provider = provider
        self._zone = zone
        self._pace = pace
        self._observe = observe
        self._watchers: defaultdict[str, list[asyncio.Queue[QueuedResourceStatus | Exception]]]
        self._watchers = defaultdict(list)
        self._seen: dict[str, QueuedResourceStatus] = {}
        self._task: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()

    async def follow(self, name: str) -> AsyncGenerator[QueuedResourceStatus, None]:
        """Its status at every look, until it is gone.

        Raises:
            NotFoundError: It is gone, or never was.
            CloudError: The API cannot be asked any more.
        """
        queue: asyncio.Queue[QueuedResourceStatus | Exception] = asyncio.Queue()
        self._watchers[name].append(queue)
        self._hurry.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look_out(), name=f"watching {self._zone}")
        try:
            while True:
                answer = await queue.get()
                if isinstance(answer, Exception):
                    raise answer
                yield answer
        finally:
            self._watchers[name].remove(queue)
            if not self._watchers[name]:
                del self._watchers[name]

    async def close(self) -> None:
        """Stop looking; those who still watch are told."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._tell_all(UnavailableError.of_closed())

    async def _look_out(self) -> None:
        try:
            await self._look()
        except Exception as error:  # noqa: BLE001 - whoever waits is told, whatever it was
            self._tell_all(error)

    async def _look(self) -> None:
        pause = self._pace.first
        while self._watchers:
            self._hurry.clear()
            found = {status.name: status for status in self._observe(await self._listed())}
            pause = self._pace.first if self._changed(found) else self._pace.after(pause)
            for name in tuple(self._watchers):
                self._tell(name, found.get(name) or await self._missing(name))
            with contextlib.suppress(TimeoutError):
                # Not wait_for, which on Python 3.11 loses a cancellation that comes together with the event.
                async with asyncio.timeout(self._pace.spread(pause)):
                    await self._hurry.wait()

    async def _listed(self) -> tuple[QueuedResourceStatus, ...]:
        try:
            return await self._provider.list_queued_resources(self._zone)
        except NotFoundError as error:
            # The list was not found, which does not say that anything on it is gone.
            raise CloudError(error.what, fix=error.fix) from error

    def _changed(self, found: dict[str, QueuedResourceStatus]) -> bool:
        states = {name: found[name].state for name in self._watchers if name in found}
        before = {name: self._seen[name].state for name in self._watchers if name in self._seen}
        self._seen = found
        return states != before

    async def _missing(self, name: str) -> QueuedResourceStatus | MultisliceError:
        """A list can leave out what could not be reached: only a get proves that it is gone."""
        try:
            return await self._provider.get_queued_resource(name, self._zone)
        except MultisliceError as error:
            return error

    def _tell(self, name: str, answer: QueuedResourceStatus | Exception) -> None:
        for queue in self._watchers.get(name, ()):
            queue.put_nowait(answer)

    def _tell_all(self, error: Exception) -> None:
        for name in tuple(self._watchers):
            self._tell(name, error)
