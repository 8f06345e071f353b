"""Deletes what has outlived its time: while this process runs, and at the next `connect()` when it died."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from typing import TYPE_CHECKING

from multislice_nb.cloud import lifecycle
from multislice_nb.errors import MultisliceError, NotFoundError

if TYPE_CHECKING:
    from multislice_nb.cloud.ledger import Entry, Ledger
    from multislice_nb.cloud.provider import Provider

__all__ = ["Janitor", "delete", "is_there", "left_behind"]

_LOOK_AT_MOST, _DELETE_SECONDS = 30.0, 900.0


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
        self.notices: list[str] = []

    def look_after(self) -> None:
        """Something with an end was created, or its end changed: watch the time."""
        self._news.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="deleting what is overdue")

    async def sweep(self) -> tuple[str, ...]:
        """Delete everything overdue by the ledger, whoever made it; returns the names."""
        gone = []
        for entry in self._entries():
            reason = entry.overdue()
            if reason is not None and await self._delete(entry, reason):
                gone.append(entry.name)
        return tuple(gone)

    async def close(self) -> None:
        """Stop looking. What is overdue later is deleted at the next `connect()`."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            self._news.clear()
            await self.sweep()
            ends = [end for entry in self._entries() if (end := _end(entry)) is not None]
            if not ends:
                return
            left = min(ends) - time.time()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), min(max(left, 0.05), _LOOK_AT_MOST))

    def _entries(self) -> list[Entry]:
        return [entry for entry in self._ledger.entries() if entry.project == self._provider.project]

    async def _delete(self, entry: Entry, reason: str) -> bool:
        try:
            operation = await delete(self._provider, entry)
            if operation is not None:
                await lifecycle.until_gone(self._provider, entry.name, entry.zone, operation, _DELETE_SECONDS)
        except MultisliceError as error:
            self.notices.append(
                f"{entry.name} in {entry.zone} should be deleted ({reason}), and was not: {error}"
            )
            return False
        self._ledger.end(entry.request_id)
        if operation is not None:
            self.notices.append(f"{entry.name} in {entry.zone} was deleted: {reason}.")
        return operation is not None


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
