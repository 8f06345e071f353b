"""One operation after another on the workers of a formation: the asynchronous core of a cluster."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import secrets
import time
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from multislice_nb import errors
from multislice_nb.cluster.formation import START_DEADLINE, Formation
from multislice_nb.cluster.gang import TICK, Gang, State
from multislice_nb.cluster.inquest import BROKEN, advice, inquest, offer
from multislice_nb.cluster.inventory import ranks_text
from multislice_nb.cluster.profiling import fetch
from multislice_nb.cluster.progress import CellProgress
from multislice_nb.cluster.receipts import Receipts
from multislice_nb.cluster.report import result_of
from multislice_nb.cluster.supervision import Supervision

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Sequence
    from pathlib import Path

    from multislice_nb.cluster.gang import Reading
    from multislice_nb.cluster.journal import Journal
    from multislice_nb.cluster.left import LeftCell
    from multislice_nb.cluster.reader import Reader
    from multislice_nb.cluster.result import CellResult
    from multislice_nb.cluster.settings import GangSettings

__all__ = ["Items", "Operator"]

Items: TypeAlias = "AsyncGenerator[CellProgress | CellResult, None]"
"""What an operation yields: its progress while it runs, and its result last."""


_RESTARTED = "The gang was started anew meanwhile; variables on the workers are lost."

TRACE_GRACE = 60.0
"""Seconds that an interrupted worker has at the least where it writes a trace before it answers."""


class Operator:
    """Runs cells and calls on a formation, one at a time."""

    def __init__(self, formation: Formation, journal: Journal, settings: GangSettings) -> None:
        self.settings = settings
        self.left: LeftCell | None = None
        self.restarts = 0
        self.receipts = Receipts(lambda: formation.link)
        self._formation = formation
        self._journal = journal
        self._turn = asyncio.Lock()
        self._stuck: dict[int, Reading] = {}
        """Requests that neither ended nor took an interrupt, by rank."""
        self._abandoned = False
        self._gang: Gang | None = None
        self._restarting = 0
        atexit.register(_leave_at_exit, weakref.ref(self))

    @property
    def running(self) -> tuple[frozenset[int], frozenset[int]]:
        """Ranks that the operation under way was given to, and those of them that run still."""
        gang = self._gang
        return (frozenset(gang.records), frozenset(gang.running)) if gang else (frozenset(), frozenset())

    @property
    def _total(self) -> int:
        return len(self._formation.site.workers)

    async def run_cell(
        self, code: str, name: str, ranks: Sequence[int], timeout: float | None, profile: Path | None = None
    ) -> Items:
        """Run a cell on some workers; with a folder, trace it and bring the traces there."""
        cell_id = secrets.token_hex(8)
        self.receipts.supersede(ranks)
        traced = (True,) if profile is not None else ()
        requests = dict.fromkeys(ranks, ("run_cell", code, name, cell_id, *traced))
        patience = max(self.settings.interrupt_grace, TRACE_GRACE) if traced else None
        reader = self._formation.reader("cells", cell_id)
        async with contextlib.aclosing(self._operate(requests, name, timeout, reader, patience)) as items:
            async for item in items:
                if isinstance(item, CellProgress):
                    yield item
                    continue
                self.receipts.owe(cell_id, [rank for rank in ranks if rank not in self._stuck])
                yield item if profile is None else await self._profiled(item, cell_id, profile)

    async def _profiled(self, result: CellResult, cell_id: str, folder: Path) -> CellResult:
        """A result with the traces of its cell."""
        formation = self._formation
        record = f"{formation.engines.folder}/cells/{cell_id}"
        workers = [worker.worker for worker in result.workers]
        return replace(result, profile=await fetch(formation.connections, workers, record, folder))

    async def call(
        self, function: str, args: tuple[Any, ...], kwargs: dict[str, Any], timeout: float | None
    ) -> Items:
        """Run an importable function on all workers."""
        call_id = secrets.token_hex(8)
        requests = dict.fromkeys(range(self._total), ("call", function, args, kwargs, call_id))
        reader = self._formation.reader("calls", call_id)
        async with contextlib.aclosing(self._operate(requests, function, timeout, reader)) as items:
            async for item in items:
                yield item

    async def collect(self) -> Items:
        """Follow a cell that was left running to its end.

        Raises:
            errors.ClusterError: There is none.
        """
        await self._find_abandoned()
        left = self.left
        if left is None:
            raise errors.ClusterError(
                "No cell was left behind.", fix="Run one; its result comes back at once."
            )
        async with self._turn:
            async with contextlib.aclosing(
                left.follow(lambda: self._formation.require_link().ranks)
            ) as looks:
                async for look in looks:
                    self._require_no_restart(f"{left.name} ended with the old one")
                    yield CellProgress.of(look.records, self._total, self._said_of(look))
            self.left = None
            self.receipts.owe(left.cell_id, left.records)
            yield result_of(left.records, self._formation.site.workers)

    async def restart(self) -> None:
        """End all engines, what runs on them and what waits for that, and start a new gang."""
        self._restarting += 1
        try:
            async with self._turn:
                await self._renew()
        finally:
            self._restarting -= 1

    def _require_no_restart(self, state: str) -> None:
        """Refuse what was asked of a gang that is to end.

        Raises:
            errors.ClusterError: Another is started in its place.
        """
        if self._restarting:
            raise errors.ClusterError(
                f"The gang of {self._formation.site.name} was started anew; {state}.",
                fix="Run it again; variables on the workers are lost.",
            )

    async def _renew(self) -> None:
        self._stuck, self.left, self._abandoned = {}, None, False
        self.restarts += 1
        await self._formation.start(deadline=START_DEADLINE)

    async def _operate(
        self,
        requests: dict[int, tuple[Any, ...]],
        title: str,
        timeout: float | None,
        reader: Reader,
        patience: float | None = None,
    ) -> Items:
        settings = self.settings if patience is None else replace(self.settings, interrupt_grace=patience)
        async with self._turn:
            self._require_no_restart("nothing was run")
            async with contextlib.aclosing(self._until_reached()) as waits:
                async for wait in waits:
                    yield wait
            await self._require_free(requests)
            self._journal.mark(list(requests), title)
            link = self._formation.require_link()
            gang = Gang(link, requests, settings, timeout=timeout, observe=self._journal.write)
            care = Supervision(
                self._formation, gang, requests=requests, reader=reader, title=title, settings=settings
            )
            task = asyncio.create_task(gang.run())
            self._gang = gang
            told: tuple[str, ...] = ()
            try:
                while not task.done():
                    await asyncio.wait({task}, timeout=TICK)
                    await care.attend()
                    if self._restarting:
                        gang.stop()
                    notices = tuple(filter(None, (*care.notices, self._journal.trouble)))
                    if gang.changed.is_set() or notices != told:
                        gang.changed.clear()
                        told = notices
                        yield CellProgress.of(gang.records, self._total, told)
                await task
            finally:
                care.close()
                await self._end(gang, task)
                self._gang = None
            self._stuck |= gang.stuck
            result = await inquest(self._formation, gang, title, self.settings.inquiry)
            result = replace(
                result,
                timed_out_after=timeout if gang.timed_out else None,
                silent_for=self.settings.silence if gang.aborted else None,
            )
            if gang.stopped:
                result = replace(result, after=_RESTARTED)
            elif self.settings.auto_restart and self._can_start(gang):
                yield CellProgress.of(gang.records, self._total, ("Starting the gang anew.",))
                result = replace(result, after=await self._started_anew())
            yield result

    async def _until_reached(self) -> AsyncGenerator[CellProgress, None]:
        """Wait for the SSH connection that carries everything, if it is broken just now.

        Raises:
            errors.ConnectError: It did not come back in time; nothing was run.
        """
        outages, told = self._formation.keeper.outages, ""
        while 0 in outages:
            outage = outages[0]
            self._require_reached("nothing was run")
            if str(outage) != told:
                told = str(outage)
                yield CellProgress((), (), self._total, (f"{told}; trying again.",))
            await asyncio.sleep(TICK)

    def _require_reached(self, state: str) -> None:
        outage = self._formation.keeper.outages.get(0)
        if outage is not None and outage.seconds > self.settings.reconnect:
            name = self._formation.site.name
            raise errors.ConnectError(
                f"{outage}; {state}.", fix=f"Look at its node; then %multislice attach {name} --recover."
            )

    def _said_of(self, left: LeftCell) -> tuple[str, ...]:
        """What to say while a cell is followed on the workers' disks; takes those that are gone as lost."""
        keeper = self._formation.keeper
        self._require_reached(f"{left.name} goes on there")
        for rank in set(left.running) & set(keeper.gone):
            left.records[rank].state, left.records[rank].reason = State.LOST, str(keeper.gone[rank])
        return tuple(f"{outage}; trying again." for outage in keeper.outages.values())

    async def _end(self, gang: Gang, task: asyncio.Task[None]) -> None:
        """After an interrupt: wait until the workers are free, with a new gang if some had to be killed."""
        if task.done():
            self._abandoned = gang.abandoned
            return
        gang.abandoned = gang.abandoned or 0 in self._formation.keeper.outages  # nobody hears an interrupt
        self._abandoned = gang.abandoned
        task.cancel()
        await asyncio.wait({task})
        if any(record.state is State.KILLED for record in gang.records.values()):
            await self._renew()

    def _can_start(self, gang: Gang) -> bool:
        """Whether the gang is broken, and its slices are there for another."""
        states = {record.state for record in gang.records.values()}
        return bool(states & BROKEN) and not self._formation.keeper.gone and State.GONE not in states

    async def _started_anew(self) -> str:
        """Start a new gang by ourselves; how that went, for the user."""
        began = time.monotonic()
        try:
            await self._renew()
        except errors.MultisliceError as error:
            return f"Starting the gang anew failed: {error.what} {offer(self._formation.site.name)}"
        return (
            f"The gang was started anew in {time.monotonic() - began:.1f} s, as gang_auto_restart asks for; "
            "variables on all workers are lost."
        )

    async def _require_free(self, ranks: Iterable[int]) -> None:
        """Refuse to start what could not run.

        Raises:
            errors.WorkerLostError: A worker has no engine any more.
            errors.ClusterError: A worker runs something else still.
        """
        site, asked, keeper = self._formation.site, set(ranks), self._formation.keeper
        await self._find_abandoned()
        vanished = sorted(asked & set(keeper.gone))
        if vanished:
            gone = keeper.gone[vanished[0]]
            health = await keeper.inquired(time.monotonic() + self.settings.inquiry)
            raise errors.WorkerLostError(
                f"{ranks_text(vanished).capitalize()} of {site.name} {'is' if len(vanished) == 1 else 'are'} gone: "
                f"{gone}; nothing was run.",
                fix=advice(site.name, health),
            )
        dead = sorted(asked - set(self._formation.require_link().ranks))
        if dead:
            what = f"{ranks_text(dead).capitalize()} of {site.name} lost its engine before this cell; nothing was run."
            raise errors.WorkerLostError(what, fix=await self._way_out())
        for rank in [rank for rank, reading in self._stuck.items() if reading.done]:
            self._stuck.pop(rank).forget()
        stuck = sorted(asked & set(self._stuck))
        if stuck:
            who = ranks_text(stuck, total=self._total).capitalize()
            what = f"{who} of {site.name} still run an earlier cell; nothing was run."
            raise errors.ClusterError(what, fix=await self._way_out())
        if self.left is not None and self.left.running:
            raise errors.ClusterError(
                f"{self.left.name} was left running on {site.name}; nothing was run.",
                fix="Wait for it with cluster.collect(), or end it with cluster.interrupt() and then collect it.",
            )

    async def _find_abandoned(self) -> None:
        """Take up what was let go of while the workers could not be reached."""
        if self._abandoned:
            self.left, self._abandoned = await self._formation.find_left(), False

    async def _way_out(self) -> str:
        """From a broken gang: a new one, if it starts by itself, or how to start it."""
        return await self._started_anew() if self.settings.auto_restart else offer(self._formation.site.name)


def _leave_at_exit(found: weakref.ref[Operator]) -> None:
    """Have what runs on the workers outlive this Python, whose end cancels all that is under way here."""
    operator = found()
    if operator is not None and operator._gang is not None:  # noqa: SLF001 - it is this module's own
        operator._gang.abandoned = True  # noqa: SLF001 - as above
