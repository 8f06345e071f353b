"""One operation after another on the workers of a formation: the asynchronous core of a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from multislice_nb import errors
from multislice_nb.cluster.formation import START_DEADLINE, Formation
from multislice_nb.cluster.gang import TICK, Gang, GangSettings, State
from multislice_nb.cluster.inventory import ranks_text
from multislice_nb.cluster.profiling import fetch
from multislice_nb.cluster.progress import CellProgress
from multislice_nb.cluster.receipts import Receipts
from multislice_nb.cluster.report import RESTART, result_of, with_endings, with_stacks

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Sequence
    from pathlib import Path

    from multislice_nb.cluster.journal import Journal
    from multislice_nb.cluster.left import LeftCell
    from multislice_nb.cluster.link import Pending
    from multislice_nb.cluster.result import CellResult

__all__ = ["Items", "Operator"]

Items: TypeAlias = "AsyncGenerator[CellProgress | CellResult, None]"
"""What an operation yields: its progress while it runs, and its result last."""


TRACE_GRACE = 60.0
"""Seconds that an interrupted worker has at the least where it writes a trace before it answers."""


class Operator:
    """Runs cells and calls on a formation, one at a time."""

    def __init__(self, formation: Formation, journal: Journal) -> None:
        self.settings = GangSettings()
        self.left: LeftCell | None = None
        self.receipts = Receipts(lambda: formation.link)
        self._formation = formation
        self._journal = journal
        self._turn = asyncio.Lock()
        self._stuck: dict[int, Pending] = {}
        self._gang: Gang | None = None

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
        async with contextlib.aclosing(self._operate(requests, name, timeout, patience)) as items:
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
        requests = dict.fromkeys(range(self._total), ("call", function, args, kwargs))
        async with contextlib.aclosing(self._operate(requests, function, timeout)) as items:
            async for item in items:
                yield item

    async def collect(self) -> Items:
        """Follow a cell that was left running to its end.

        Raises:
            errors.ClusterError: There is none.
        """
        left = self.left
        if left is None:
            raise errors.ClusterError(
                "No cell was left behind.", fix="Run one; its result comes back at once."
            )
        async with self._turn:
            async with contextlib.aclosing(left.follow(self._formation.require_link().ranks)) as looks:
                async for look in looks:
                    yield CellProgress.of(look.records, self._total)
            self.left = None
            self.receipts.owe(left.cell_id, left.records)
            yield result_of(left.records, self._formation.site.workers)

    async def restart(self) -> None:
        """End all engines and start a new gang."""
        async with self._turn:
            await self._renew()

    async def _renew(self) -> None:
        self._stuck, self.left = {}, None
        await self._formation.start(deadline=START_DEADLINE)

    async def _operate(
        self,
        requests: dict[int, tuple[Any, ...]],
        title: str,
        timeout: float | None,
        patience: float | None = None,
    ) -> Items:
        settings = self.settings if patience is None else replace(self.settings, interrupt_grace=patience)
        async with self._turn:
            self._require_free(requests)
            self._journal.mark(list(requests), title)
            gang = Gang(
                self._formation.require_link(),
                requests,
                settings,
                timeout=timeout,
                observe=self._journal.write,
            )
            task = asyncio.create_task(gang.run())
            self._gang = gang
            try:
                while not task.done():
                    await asyncio.wait({task}, timeout=TICK)
                    self._require_connection(gang)
                    if gang.changed.is_set():
                        gang.changed.clear()
                        yield CellProgress.of(gang.records, self._total)
                await task
            finally:
                await self._end(gang, task)
                self._gang = None
            self._stuck = gang.stuck
            yield await self._result(gang, title, timeout)

    def _require_connection(self, gang: Gang) -> None:
        """Stop waiting, and let the workers go on, when nothing can be heard of them any more.

        Raises:
            errors.ConnectError: The SSH connection to worker 0, which carries everything, is gone.
        """
        if gang.running and not self._formation.connections.is_open(0):
            gang.abandoned = True
            name = self._formation.site.name
            raise errors.ConnectError(
                f"The SSH connection to {self._formation.site.workers[0]} of {name} was lost; the cell goes on there.",
                fix=f"%multislice attach {name}, then cluster.collect() gives all that it printed and returned.",
            )

    async def _end(self, gang: Gang, task: asyncio.Task[None]) -> None:
        """After an interrupt: wait until the workers are free, with a new gang if some had to be killed."""
        if task.done():
            return
        task.cancel()
        await asyncio.wait({task})
        if any(record.state is State.KILLED for record in gang.records.values()):
            await self._renew()

    async def _result(self, gang: Gang, title: str, timeout: float | None) -> CellResult:
        result = result_of(gang.records, self._formation.site.workers)
        result = replace(result, timed_out_after=timeout if gang.timed_out else None)
        states = {rank: record.state for rank, record in gang.records.items()}
        blocked = [rank for rank, state in states.items() if state in {State.STUCK, State.KILLED}]
        lost = [rank for rank, state in states.items() if state is State.LOST]
        engines = self._formation.engines
        with contextlib.suppress(errors.ConnectError):  # what is known is told, even where a VM is gone too
            if blocked:
                result = with_stacks(result, await engines.stacks(blocked), title)
            if lost:
                result = with_endings(result, await engines.endings(lost))
        return result

    def _require_free(self, ranks: Iterable[int]) -> None:
        """Refuse to start what could not run.

        Raises:
            errors.WorkerLostError: A worker has no engine any more.
            errors.ClusterError: A worker runs something else still.
        """
        site, asked = self._formation.site, set(ranks)
        gone = sorted(asked - set(self._formation.require_link().ranks))
        if gone:
            raise errors.WorkerLostError(
                f"{ranks_text(gone).capitalize()} of {site.name} lost its engine before this cell; nothing was run.",
                fix=RESTART,
            )
        stuck = sorted(rank for rank in asked & set(self._stuck) if not self._stuck[rank].done)
        if stuck:
            raise errors.ClusterError(
                f"{ranks_text(stuck, total=self._total).capitalize()} of {site.name} still run an earlier cell; "
                "nothing was run.",
                fix=RESTART,
            )
        if self.left is not None and self.left.running:
            raise errors.ClusterError(
                f"{self.left.name} was left running on {site.name}; nothing was run.",
                fix="Wait for it with cluster.collect(), or end it with cluster.interrupt() and then collect it.",
            )
