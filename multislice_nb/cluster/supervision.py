"""Looks after one operation while it runs: connections that drop, workers that vanish, and silence."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from typing import TYPE_CHECKING, Any

from multislice_nb import errors
from multislice_nb.cluster.gang import State
from multislice_nb.cluster.inventory import ranks_text
from multislice_nb.cluster.reader import FromRecord
from multislice_nb.cluster.report import place

if TYPE_CHECKING:
    from collections.abc import Mapping

    from multislice_nb.cluster.formation import Formation
    from multislice_nb.cluster.gang import Gang, Record
    from multislice_nb.cluster.reader import Reader
    from multislice_nb.cluster.settings import GangSettings

__all__ = ["Supervision"]


class Supervision:
    """What befalls a gang operation from outside, and what a user should know meanwhile.

    Args:
        formation: Where it runs.
        gang: The operation.
        requests: What each worker was asked, by rank.
        reader: Reads what the workers keep of it on their disks.
        title: What tracebacks call the cell.
        settings: How patient to be.

    Attributes:
        notices: What is to be said now.
    """

    def __init__(
        self,
        formation: Formation,
        gang: Gang,
        *,
        requests: Mapping[int, tuple[Any, ...]],
        reader: Reader,
        title: str,
        settings: GangSettings,
    ) -> None:
        self._formation = formation
        self._gang = gang
        self._requests = requests
        self._reader = reader
        self._title = title
        self._settings = settings
        self._link = formation.require_link()
        self._standing: asyncio.Task[str] | None = None
        self.notices: tuple[str, ...] = ()

    async def attend(self) -> None:
        """Take notice of what happened since the last time.

        Raises:
            errors.ConnectError: The workers could not be reached for too long; the operation goes on there.
            errors.ClusterError: The cluster was detached; the same.
        """
        gang, keeper = self._gang, self._formation.keeper
        self._require_attached()
        for rank, gone in keeper.gone.items():
            if rank in gang.records:
                gang.lose(rank, gone.reason, gone.at)
        if any(record.state in {State.LOST, State.GONE} for record in gang.records.values()):
            keeper.inquire()  # the answer is there when the operation ends
        if 0 in keeper.gone:
            await self._end_headless()
        elif 0 in keeper.outages:
            self._wait_for_controller()
        elif self._formation.require_link() is not self._link:
            self._link = self._formation.require_link()
            gang.resume(self._link, self._read_on)
        said = [f"{outage}; trying again. The cell goes on there." for outage in keeper.outages.values()]
        self.notices = (*said, *([] if 0 in keeper.outages else self._silence()))

    def close(self) -> None:
        """Look no more."""
        if self._standing is not None:
            self._standing.cancel()

    def _require_attached(self) -> None:
        if self._formation.link is None:
            self._gang.abandoned = True
            name = self._formation.site.name
            if self._formation.dissolved:
                raise errors.ClusterError(
                    f"{name} was shut down, and what ran there ended with it.",
                    fix=f"%multislice attach {name}",
                )
            raise errors.ClusterError(f"{name} was detached; the cell goes on there.", fix=_collect(name))

    def _wait_for_controller(self) -> None:
        """Nothing can be heard or told of any worker until the one with the controller is reached again."""
        self._gang.pause()
        outage = self._formation.keeper.outages[0]
        if outage.seconds > self._settings.reconnect and self._gang.running:
            self._gang.abandoned = True
            name = self._formation.site.name
            raise errors.ConnectError(
                f"{outage}, and it leads to all workers of {name}. The cell goes on there.",
                fix=_collect(name),
            )

    def _read_on(self, record: Record) -> FromRecord:
        rank, link = record.rank, self._link
        return FromRecord(
            self._reader,
            rank,
            record.taken,
            alive=lambda: rank in link.ranks,
            ask=lambda: link.submit([rank], *self._requests[rank]).get(rank),
        )

    async def _end_headless(self) -> None:
        """Free the workers that are left of a gang whose controller is gone: nobody else can reach them."""
        keeper = self._formation.keeper
        for rank in self._gang.running:
            if rank in keeper.outages:
                node = self._formation.site.workers[rank].node_id
                self._gang.lose(
                    rank, keeper.trouble(rank) or f"node {node} does not answer", keeper.outages[rank].at
                )
        reachable = self._gang.running
        with contextlib.suppress(errors.ConnectError, TimeoutError):
            async with asyncio.timeout(self._settings.inquiry):
                await self._formation.engines.stop(patience=0.1, ranks=reachable)
        self._gang.end_all(State.KILLED)

    # Silence

    def _silence(self) -> list[str]:
        """Say where the workers are when nothing was heard of any for long; stop them if that is wanted."""
        limit, silent_for = self._settings.silence, self._gang.silent_for
        if not limit or silent_for < limit or not self._gang.running:
            self.close()
            self._standing = None
            return []
        if self._standing is None:
            self._standing = asyncio.create_task(self._stands())
        if not self._standing.done():
            return []
        if self._settings.abort_on_hang:
            self._gang.abort()
        where = self._standing.result() if self._standing.exception() is None else ""
        since = time.strftime("%H:%M:%S", time.localtime(time.time() - silent_for))
        return [f"No worker has printed or ended since {since}. {where}".rstrip()]

    async def _stands(self) -> str:
        """Where each worker stands, those at one place together."""
        running = self._gang.running
        self._link.signal(running, "SIGUSR1")
        places: dict[str, list[int]] = {}
        for rank, text in (await self._formation.engines.stacks(running)).items():
            places.setdefault(_where(text, self._title), []).append(rank)
        total = len(self._formation.site.workers)
        told = "; ".join(f"{ranks_text(ranks, total=total)} {where}" for where, ranks in places.items())
        apart = " Those in a collective wait for the others." if len(places) > 1 else ""
        return f"{told[:1].upper()}{told[1:]}.{apart}" if told else ""


def _collect(name: str) -> str:
    return f"%multislice attach {name}, then cluster.collect() gives all that it printed and returned."


def _where(text: str, title: str) -> str:
    """A stack in a few words: the line of the cell, what it called, and the innermost function."""
    dump = text[text.rfind("Current thread") :] if "Current thread" in text else text
    innermost = re.search(r'File ".*?([^"/\\]*)", line (\d+) in (.*)', dump)
    inner = f"{innermost[3]}, {innermost[1]}:{innermost[2]}" if innermost else "an unknown place"
    found = place(dump, title)
    if not found:
        return f"in {inner}"
    called = f" ({found['line']})" if found["line"] else ""
    return f"at line {found['line_number']}{called}, in {inner}"
