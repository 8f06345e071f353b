"""Deletes what has outlived its time: while this process runs, and at the next `connect()` when it died."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import time
from typing import TYPE_CHECKING

from multislice_nb.cloud import lifecycle
from multislice_nb.cloud.watch import Pace
from multislice_nb.errors import MultisliceError, NotFoundError

if TYPE_CHECKING:
    from multislice_nb.cloud.ledger import Entry, Ledger
    from multislice_nb.cloud.provider import Provider

__all__ = ["Janitor", "delete", "is_there", "left_behind"]

_LOOK_AT_MOST, _DELETE_SECONDS = 30.0, 900.0
_AGAIN = Pace(first=30.0, last=900.0, growth=2.0)
"""When a deletion that failed is tried again."""


class Janitor:
    """Looks after the times to live and idle limits of one project.

    Attributes:
        notices: What it did, for people.
    """

    def __init__(self, provider: Provider, ledger: Ledger) -> None:
        self._provider = provider
        self._ledger = ledger
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._deletions: dict[str, asyncio.Task[str]] = {}
        self._failures: dict[str, tuple[float, float]] = {}  # the pause after each, and when that is over
        self._reasons: dict[str, str] = {}
        self.notices: list[str] = []

    async def start(self) -> None:
        """Delete what is overdue by now, and watch the time of what is not: another process may have asked for it."""
        self.look_after()
        await self.sweep()

    def look_after(self) -> None:
        """Something with an end was created, or its end changed: watch the time."""
        self._news.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="deleting what is overdue")

    def condemn(self, request_id: str, reason: str) -> None:
        """Delete what was asked for there, and try until it is gone; the next `connect()` does if this process ends."""
        self._reasons[request_id] = reason
        self._ledger.extend(request_id, time.time())
        self.look_after()

    async def sweep(self) -> tuple[str, ...]:
        """Delete everything overdue by the ledger, whoever made it; returns the names."""
        self._begin()
        return tuple(name for name in await asyncio.gather(*self._deletions.values()) if name)

    async def close(self) -> None:
        """Stop looking. What is overdue later is deleted at the next `connect()`."""
        tasks = [*self._deletions.values(), *([self._task] if self._task else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            self._news.clear()
            try:
                self._begin()
                moments = [moment for entry in self._entries() if (moment := self._due(entry)) is not None]
            except MultisliceError as error:  # the ledger's: another look may succeed
                self._note(f"What is overdue is not known: {error}")
                moments = [time.time() + _LOOK_AT_MOST]
            if not moments and not self._deletions:
                return
            left = min(moments, default=time.time() + _LOOK_AT_MOST) - time.time()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(max(left, 0.05), _LOOK_AT_MOST)):
                    await self._news.wait()

    def _begin(self) -> None:
        """Begin to delete what is overdue; one that takes minutes keeps no other from its end."""
        now = time.time()
        for entry in self._entries():
            reason, due = entry.overdue(now), self._due(entry)
            if reason is not None and due is not None and due <= now:
                reason = self._reasons.get(entry.request_id, reason)
                self._deletions[entry.request_id] = task = asyncio.create_task(self._delete(entry, reason))
                task.add_done_callback(functools.partial(self._ended, entry.request_id))

    def _ended(self, request_id: str, _task: asyncio.Task[str]) -> None:
        del self._deletions[request_id]
        self._news.set()

    def _due(self, entry: Entry) -> float | None:
        """When there is something to do about it; None when there is not."""
        end = _end(entry)
        if end is None or entry.request_id in self._deletions:
            return None
        return max(end, self._failures.get(entry.request_id, (0.0, 0.0))[1])

    def _note(self, notice: str) -> None:
        if notice not in self.notices:
            self.notices.append(notice)

    def _entries(self) -> list[Entry]:
        return [entry for entry in self._ledger.entries() if entry.project == self._provider.project]

    async def _delete(self, entry: Entry, reason: str) -> str:
        """Its name when it was deleted; nothing when there was nothing to delete, or when that failed."""
        try:
            operation = await delete(self._provider, entry)
            if operation is not None:
                await lifecycle.until_gone(self._provider, entry.name, entry.zone, operation, _DELETE_SECONDS)
            self._ledger.end(entry.request_id)
        except Exception as error:  # noqa: BLE001 - whatever it was is told, and it is tried again
            last, _ = self._failures.get(entry.request_id, (0.0, 0.0))
            pause = _AGAIN.after(last) if last else _AGAIN.first
            self._failures[entry.request_id] = pause, time.time() + _AGAIN.spread(pause)
            told = error if isinstance(error, MultisliceError) else repr(error)
            self._note(f"{entry.name} in {entry.zone} should be deleted ({reason}), and was not: {told}")
            return ""
        self._failures.pop(entry.request_id, None)
        if operation is None:
            return ""
        self._note(f"{entry.name} in {entry.zone} was deleted: {reason}.")
        return entry.name


async def is_there(provider: Provider, entry: Entry) -> bool:
    """Whether what was asked for still exists; another one that has its name by now is not it."""
    try:
        return entry.is_of(await provider.get_queued_resource(entry.name, entry.zone))
    except NotFoundError:
        return False


async def delete(provider: Provider, entry: Entry) -> str | None:
    """Delete what was asked for, if it still exists; returns the operation."""
    if not await is_there(provider, entry):
        return None
    try:
        return await provider.delete_queued_resource(entry.name, entry.zone, force=True)
    except NotFoundError:
        return None


def left_behind(ledger: Ledger, project: str) -> tuple[Entry, ...]:
    """What notebooks that are gone asked for and nobody has deleted, by the ledger alone.

    A job's slices are not left behind: it needs no notebook, and deletes them itself.
    """
    mine = [entry for entry in ledger.entries() if entry.project == project and not entry.job]
    return tuple(entry for entry in mine if entry.owner_pid != os.getpid() and entry.owner_is_alive is False)


def _end(entry: Entry) -> float | None:
    ends = [
        entry.expires_at,
        None if entry.idle_limit is None else entry.used_at + entry.idle_limit,
    ]
    known = [end for end in ends if end is not None]
    return min(known) if known else None
