"""The workers of one queued resource, attached.

`Cluster.run` is what a cell goes through: one gang operation on all workers, with its output as it comes and
one error at its end.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from multislice_nb import errors
from multislice_nb._portal import iterate, sync
from multislice_nb.cluster import registry
from multislice_nb.cluster.cluster_view import as_html, as_text
from multislice_nb.cluster.defining import DEFINE, packed
from multislice_nb.cluster.driven import followed
from multislice_nb.cluster.environment import Environment
from multislice_nb.cluster.handle import CellHandle
from multislice_nb.cluster.inventory import Targets, ranks_text, select
from multislice_nb.cluster.journal import DiskWarning, Journal
from multislice_nb.cluster.operator import Operator
from multislice_nb.cluster.profiling import prepared
from multislice_nb.cluster.progress import CellProgress
from multislice_nb.cluster.reaching import Reach
from multislice_nb.cluster.settings import GangSettings
from multislice_nb.config import state_home

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from multislice_nb.cloud import QueuedResource
    from multislice_nb.cluster.files import Files
    from multislice_nb.cluster.formation import Formation
    from multislice_nb.cluster.inventory import Worker
    from multislice_nb.cluster.left import LeftCell
    from multislice_nb.cluster.result import CellResult
    from multislice_nb.cluster.shell import Shell
    from multislice_nb.tpu import AcceleratorType

__all__ = ["Cluster", "SubsetWarning"]


TOUCH_EVERY = 30.0
"""Seconds between two notes in the ledger that a queued resource is in use."""


class SubsetWarning(UserWarning):
    """A cell runs on some workers only, so a JAX collective in it would wait for the others for ever."""


class Cluster:
    """An attached gang of workers. Made by `attach`.

    Attributes:
        queued_resource: Whose workers they are.
        name: The queued resource's name.
        journal: Where all that the workers print is kept on this machine.
    """

    def __init__(
        self, queued_resource: QueuedResource, formation: Formation, settings: GangSettings | None = None
    ) -> None:
        self.queued_resource = queued_resource
        self.name = formation.site.name
        self.journal = Journal(state_home() / "logs" / self.name, formation.site.workers)
        self._formation = formation
        self._operator = Operator(formation, self.journal, settings or GangSettings.configured())
        self._cells = 0
        self._warned = False
        self._touched = -TOUCH_EVERY

    # What it is

    @property
    def workers(self) -> tuple[Worker, ...]:
        """All workers, in rank order."""
        return self._formation.site.workers

    @property
    def accelerator_type(self) -> AcceleratorType:
        """What each slice is."""
        return self._formation.site.accelerator_type

    @property
    def node_count(self) -> int:
        """How many slices there are."""
        return self._formation.site.node_count

    @property
    def devices(self) -> list[dict[str, Any]]:
        """What JAX saw on each worker when the gang formed."""
        return self._formation.devices

    @property
    def alive(self) -> tuple[int, ...]:
        """Ranks whose engine is registered now; empty once detached."""
        link = self._formation.link
        return link.ranks if link is not None else ()

    @property
    def running(self) -> tuple[frozenset[int], frozenset[int]]:
        """Ranks that the cell under way was given to, and those of them that run still; empty while there is none."""
        return self._operator.running

    @property
    def restarts(self) -> int:
        """How often the gang was started anew since this attached, by whatever; each time its variables were lost."""
        return self._operator.restarts

    @property
    def settings(self) -> GangSettings:
        """How patient a cell is with the others after one worker failed; assign another to change it."""
        return self._operator.settings

    @settings.setter
    def settings(self, settings: GangSettings) -> None:
        self._operator.settings = settings
        self._formation.heartbeat = settings.heartbeat

    @property
    def client(self) -> Any:
        """ipyparallel's own client, for those who want its views. Engine ids are not ranks.

        Another one after an SSH connection broke: what views of the earlier one wait for does not come.

        Raises:
            errors.ClusterError: The cluster is detached.
        """  # noqa: D403 - that is how ipyparallel is spelled
        return self._formation.require_link().client

    @cached_property
    def reach(self) -> Reach:
        """The workers over SSH alone: files, shell commands and what their environment is like."""
        return Reach(self._formation.site, self._formation.connections, self.journal)

    @property
    def files(self) -> Files:
        """Files to the workers and back."""
        return self.reach.files

    @property
    def shell(self) -> Shell:
        """Shell commands on the workers."""
        return self.reach.shell

    @cached_property
    def environment(self) -> Environment:
        """What the workers are like and have: holders of the TPU, packages, variables."""
        formation = self._formation
        return Environment(
            formation.connections, self.workers, self.name, call=self.call, pythons=lambda: formation.pythons
        )

    # Running code

    def run(
        self,
        code: str,
        *,
        ranks: Targets = None,
        slices: Targets = None,
        workers: Targets = None,
        timeout: float | None = None,
        check: bool = True,
        name: str | None = None,
        profile: bool | str | Path = False,
        on_update: Callable[[CellProgress], None] | None = None,
    ) -> CellResult:
        """Run a cell on every worker, as one gang operation.

        Args:
            code: The cell, as IPython takes it.
            ranks: A subset by rank, as numbers or as `0,2-3`. A JAX collective in the cell then waits for
                those left out, which is warned of once.
            slices: A subset by slice.
            workers: A subset by worker in slice.
            timeout: Seconds until the cell is stopped everywhere; None for no limit.
            check: Whether a failure on any worker raises.
            name: What tracebacks call the cell.
            profile: Whether to trace it with jax.profiler on these workers, or the folder that gets the traces;
                `profiles` if none is named. They are `result.profile`, also where the cell failed.
            on_update: Called in this thread with the output so far, at most five times a second.

        Returns:
            What the cell left on every worker.

        Raises:
            errors.InvalidRequestError: The targets name nobody, or the folder cannot be made.
            errors.WorkerError: It failed on a worker; shows the first failure in time.
            errors.WorkerLostError: A worker's process ended.
            errors.CellTimeoutError: It ran past `timeout`.
            errors.ClusterError: The cluster is detached, or runs something else still.
            KeyboardInterrupt: It was interrupted here, and by then on every worker.
        """
        targets, title = self._targets(ranks, slices, workers), self._title(name)
        items = iterate(self._operator.run_cell, code, title, targets, timeout, prepared(profile))
        try:
            return followed(items, check=check, on_update=on_update)
        finally:
            if self.journal.trouble:
                warnings.warn(self.journal.trouble, DiskWarning, stacklevel=2)

    def submit(
        self,
        code: str,
        *,
        ranks: Targets = None,
        slices: Targets = None,
        workers: Targets = None,
        timeout: float | None = None,
        name: str | None = None,
        profile: bool | str | Path = False,
    ) -> CellHandle:
        """Run a cell as `run` does, without waiting for it."""
        targets, title = self._targets(ranks, slices, workers), self._title(name)
        return CellHandle(title, self._operator.run_cell(code, title, targets, timeout, prepared(profile)))

    def collect(
        self, *, check: bool = True, on_update: Callable[[CellProgress], None] | None = None
    ) -> CellResult:
        """Get what a cell printed and returned that ran while no notebook was attached, waiting for its end.

        Raises:
            errors.ClusterError: No cell was left behind.
            errors.WorkerError: It failed on a worker.
        """
        return followed(iterate(self._operator.collect), check=check, on_update=on_update)

    @property
    def left(self) -> LeftCell | None:
        """A cell that was found when this notebook attached, and that nobody has collected."""
        return self._operator.left

    def call(self, function: str, *args: Any, timeout: float | None = None, **kwargs: Any) -> list[Any]:
        """Run an importable function, `package.module:function`, on every worker as one gang.

        Returns:
            What it returned, by rank.

        Raises:
            errors.WorkerError: It raised on a worker, and the same as `run`.
        """
        return sync(self.acall, function, *args, timeout=timeout, **kwargs)

    async def acall(
        self, function: str, *args: Any, timeout: float | None = None, **kwargs: Any
    ) -> list[Any]:
        """`call`, to be awaited on the background loop."""
        values: list[Any] = []
        self._touch()
        async with contextlib.aclosing(self._operator.call(function, args, kwargs, timeout)) as items:
            async for item in items:
                if not isinstance(item, CellProgress):
                    item.raise_for_error()
                    values = item.values
        return values

    def define(self, **variables: Any) -> None:
        """Define variables in the cells of every worker: numbers, texts, containers, arrays.

        Functions and classes come with their module, which `files.push` brings.

        Raises:
            errors.InvalidRequestError: One of them cannot travel, or is over 64 MiB pickled; none was sent.
            errors.WorkerError: A worker lacks a module that a value needs, and the same as `run`.
        """
        self.call(DEFINE, packed(variables))

    def _title(self, name: str | None) -> str:
        self._cells += 1
        self._touch()
        return name or f"<cell {self._cells}>"

    def _touch(self) -> None:
        """Count a queued resource's idle limit from the last time that something ran on it."""
        if time.monotonic() - self._touched > TOUCH_EVERY:
            self._touched = time.monotonic()
            try:
                self.queued_resource.touch()
            except errors.MultisliceError as error:
                what = f"An idle limit does not see that {self.name} is in use. {error}"
                warnings.warn(what, DiskWarning, stacklevel=4)

    def _targets(self, ranks: Targets, slices: Targets, worker_ids: Targets) -> list[int]:
        chosen = select(self.workers, ranks=ranks, slices=slices, worker_ids=worker_ids)
        if len(chosen) < len(self.workers) and not self._warned:
            self._warned = True
            warnings.warn(
                f"This cell runs on {ranks_text(chosen)} of {len(self.workers)} workers: "
                "a JAX collective in it would wait for the others for ever.",
                SubsetWarning,
                stacklevel=3,
            )
        return chosen

    # Its life

    async def find_left(self) -> None:
        """Look for a cell that ran here while no notebook was attached."""
        self._operator.left = await self._formation.find_left() if self._formation.reused else None

    @property
    def unreachable(self) -> tuple[str, ...]:
        """Workers that cannot be reached over SSH just now, each with since when and why."""
        return tuple(str(outage) for outage in self._formation.keeper.outages.values())

    @property
    def cut_off(self) -> str:
        """Since when and why no worker can be heard or told anything, rank 0 leading to all; empty if they can."""
        outage = self._formation.keeper.outages.get(0)
        return str(outage) if outage is not None else ""

    def interrupt(self) -> None:
        """Interrupt what runs on the workers, as from another thread or a panel. Does not wait.

        Raises:
            errors.ConnectError: The worker that leads to them cannot be reached just now.
        """
        if self.cut_off:
            raise errors.ConnectError(
                f"{self.cut_off}, so nothing can be interrupted.",
                fix="It is tried again by itself; interrupt once it is back.",
            )
        self._formation.require_link().signal(self.alive, "SIGINT")

    def restart(self) -> None:
        """End all engines, blocked ones too, and start a new gang. Variables on the workers are lost.

        A cell that runs is stopped, and one that waits for it fails.

        Raises:
            errors.StartError: A part did not start.
        """
        sync(self.arestart)

    async def arestart(self) -> None:
        """`restart`, to be awaited on the background loop."""
        await self._operator.restart()

    def detach(self) -> None:
        """Let go of the workers. Engines, variables and a running cell stay, for the next `attach`."""
        sync(self.adetach)

    async def adetach(self) -> None:
        """`detach`, to be awaited on the background loop."""
        self._forget()
        try:
            await self._operator.receipts.give()
        finally:
            await self._formation.leave()

    def shutdown(self) -> None:
        """End the engines on all workers and let go of them. The slices stay. Nothing once it is detached."""
        sync(self.ashutdown)

    async def ashutdown(self) -> None:
        """`shutdown`, to be awaited on the background loop."""
        self._forget()
        if self._formation.connections.ranks:
            await self._formation.dissolve()

    def _forget(self) -> None:
        registry.remove(self)
        self.journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    # How it looks

    def __str__(self) -> str:
        return as_text(self)

    def __repr__(self) -> str:
        return f"<Cluster {self.name}: {self.node_count} x {self.accelerator_type.name}, {len(self.workers)} workers>"

    def _repr_html_(self) -> str:
        return as_html(self)
