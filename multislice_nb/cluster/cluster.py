"""The workers of one queued resource, attached.

`Cluster.run` is what a cell goes through: one gang operation on all workers, with its output as it comes and
one error at its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import html
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from multislice_nb import errors
from multislice_nb._portal import iterate, sync
from multislice_nb.cluster.formation import Formation, Site
from multislice_nb.cluster.gang import TICK, Gang, GangSettings, State
from multislice_nb.cluster.inventory import ranks_text, workers_of
from multislice_nb.cluster.journal import Journal
from multislice_nb.cluster.progress import CellProgress
from multislice_nb.cluster.report import RESTART, result_of, with_endings, with_stacks
from multislice_nb.config import state_home
from multislice_nb.tpu import AcceleratorType

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from multislice_nb.cloud import QueuedResource
    from multislice_nb.cluster.inventory import Worker
    from multislice_nb.cluster.link import Pending
    from multislice_nb.cluster.result import CellResult

__all__ = ["Cluster", "aattach", "attach", "attached"]

START_DEADLINE = 120.0
"""Seconds for SSH to answer on all workers, and again for the gang to start."""

_attached: dict[str, Cluster] = {}


class Cluster:
    """An attached gang of workers. Made by `attach`.

    Attributes:
        name: The queued resource's name.
        settings: How patient a cell is with the others after one worker failed.
    """

    def __init__(self, queued_resource: QueuedResource, formation: Formation) -> None:
        self.queued_resource = queued_resource
        self.name = formation.site.name
        self.settings = GangSettings()
        self._formation = formation
        self._turn = asyncio.Lock()
        self._cells = 0
        self._stuck: dict[int, Pending] = {}
        self.journal = Journal(state_home() / "logs" / self.name, formation.site.workers)

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
    def client(self) -> Any:
        """Ipyparallel's own client, for those who want its views. Engine ids are not ranks.

        Raises:
            errors.ClusterError: The cluster is detached.
        """
        return self._formation.require_link().client

    # Running code

    def run(
        self,
        code: str,
        *,
        ranks: Iterable[int] | None = None,
        timeout: float | None = None,
        check: bool = True,
        name: str | None = None,
        on_update: Callable[[CellProgress], None] | None = None,
    ) -> CellResult:
        """Run a cell on every worker, as one gang operation.

        Args:
            code: The cell, as IPython takes it.
            ranks: A subset of workers. A JAX collective in the cell then waits for those left out.
            timeout: Seconds until the cell is stopped everywhere; None for no limit.
            check: Whether a failure on any worker raises.
            name: What tracebacks call the cell.
            on_update: Called in this thread with the output so far, at most five times a second.

        Returns:
            What the cell left on every worker.

        Raises:
            errors.WorkerError: It failed on a worker; shows the first failure in time.
            errors.WorkerLostError: A worker's process ended.
            errors.CellTimeoutError: It ran past `timeout`.
            errors.ClusterError: The cluster is detached, or has lost workers earlier.
            KeyboardInterrupt: It was interrupted here, and by then on every worker.
        """
        self._cells += 1
        title = name or f"<cell {self._cells}>"
        requests = dict.fromkeys(self._targets(ranks), ("run_cell", code, title))
        return self._operate(requests, title, timeout=timeout, check=check, on_update=on_update)

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
        requests = {worker.rank: ("call", function, args, kwargs) for worker in self.workers}
        result: CellResult | None = None
        async for item in self._watch(requests, function, timeout=timeout):
            result = item if not isinstance(item, CellProgress) else result
        return self._checked(result, check=True).values

    def _operate(
        self,
        requests: dict[int, tuple[Any, ...]],
        title: str,
        *,
        timeout: float | None,
        check: bool,
        on_update: Callable[[CellProgress], None] | None,
    ) -> CellResult:
        result: CellResult | None = None
        with contextlib.closing(iterate(self._watch, requests, title, timeout=timeout)) as items:
            for item in items:
                if not isinstance(item, CellProgress):
                    result = item
                elif on_update is not None:
                    on_update(item)
        return self._checked(result, check=check)

    @staticmethod
    def _checked(result: CellResult | None, *, check: bool) -> CellResult:
        if result is None:
            raise AssertionError("a gang operation ends with a result")
        if check:
            result.raise_for_error()
        return result

    def _targets(self, ranks: Iterable[int] | None) -> list[int]:
        everyone = [worker.rank for worker in self.workers]
        if ranks is None:
            return everyone
        chosen = sorted(set(ranks))
        strangers = set(chosen) - set(everyone)
        if strangers or not chosen:
            raise errors.InvalidRequestError(
                f"{self.name} has no {ranks_text(strangers) if strangers else 'empty target'}; "
                f"its ranks are 0 to {len(everyone) - 1}.",
                fix="Name ranks of this cluster, or leave them out for all.",
            )
        return chosen

    async def _watch(
        self, requests: dict[int, tuple[Any, ...]], title: str, *, timeout: float | None
    ) -> AsyncIterator[CellProgress | CellResult]:
        """Run one gang operation, yielding its progress and in the end its result."""
        async with self._turn:
            self._require_whole(requests)
            self.journal.mark(list(requests), title)
            gang = Gang(
                self._formation.require_link(),
                requests,
                self.settings,
                timeout=timeout,
                observe=self.journal.write,
            )
            task = asyncio.create_task(gang.run())
            try:
                while not task.done():
                    await asyncio.wait({task}, timeout=TICK)
                    if gang.changed.is_set():
                        gang.changed.clear()
                        yield CellProgress.of(gang, self.workers)
                await task
            finally:
                await self._end(gang, task)
            self._stuck = gang.stuck
            yield await self._result(gang, title, timeout)

    async def _end(self, gang: Gang, task: asyncio.Task[None]) -> None:
        """After an interrupt: wait until the workers are free, with a new gang if some had to be killed."""
        if task.done():
            return
        task.cancel()
        await asyncio.wait({task})
        if any(record.state is State.KILLED for record in gang.records.values()):
            await self._renew()

    async def _result(self, gang: Gang, title: str, timeout: float | None) -> CellResult:
        result = replace(result_of(gang, self.workers), timed_out_after=timeout if gang.timed_out else None)
        blocked = [rank for rank, r in gang.records.items() if r.state in {State.STUCK, State.KILLED}]
        lost = [rank for rank, r in gang.records.items() if r.state is State.LOST]
        if blocked:
            result = with_stacks(result, await self._formation.engines.stacks(blocked), title)
        if lost:
            with contextlib.suppress(errors.ConnectError):  # its VM may be gone as well
                result = with_endings(result, await self._formation.engines.endings(lost))
        return result

    def _require_whole(self, requests: dict[int, tuple[Any, ...]]) -> None:
        link = self._formation.require_link()
        gone = sorted(set(requests) - set(link.ranks))
        if gone:
            raise errors.WorkerLostError(
                f"{ranks_text(gone).capitalize()} of {self.name} lost its engine before this cell; nothing was run.",
                fix=RESTART,
            )
        stuck = [rank for rank in requests if rank in self._stuck and not self._stuck[rank].done]
        if stuck:
            raise errors.ClusterError(
                f"{ranks_text(stuck, total=len(self.workers)).capitalize()} of {self.name} still run an earlier cell; "
                "nothing was run.",
                fix=RESTART,
            )

    # Its life

    def interrupt(self) -> None:
        """Interrupt what runs on the workers, as from another thread or a panel. Does not wait."""
        self._formation.require_link().signal(self.alive, "SIGINT")

    def restart(self) -> None:
        """End all engines, blocked ones too, and start a new gang. Variables on the workers are lost.

        Raises:
            errors.StartError: A part did not start.
        """
        sync(self.arestart)

    async def arestart(self) -> None:
        """`restart`, to be awaited on the background loop."""
        async with self._turn:
            await self._renew()

    async def _renew(self) -> None:
        self._stuck = {}
        await self._formation.start(deadline=START_DEADLINE)

    def detach(self) -> None:
        """Let go of the workers. Engines, variables and a running cell stay, for the next `attach`."""
        sync(self.adetach)

    async def adetach(self) -> None:
        """`detach`, to be awaited on the background loop."""
        self._forget()
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
        if _attached.get(self.name) is self:
            del _attached[self.name]
        self.journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    # How it looks

    def __str__(self) -> str:
        if not self.alive:
            return f"{self.name}: detached"
        first, kind = self.devices[0], self.accelerator_type
        return (
            f"{len(self.alive)} of {len(self.workers)} workers ready · jax {first['jax']} · {first['device_count']} devices = "
            f"{self.node_count} slice{'s' if self.node_count > 1 else ''} x {kind.device_count} ({kind.name}, {first['device_kind']})"
        )

    def __repr__(self) -> str:
        return f"<Cluster {self.name}: {self.node_count} x {self.accelerator_type.name}, {len(self.workers)} workers>"

    def _repr_html_(self) -> str:
        alive = set(self.alive)
        rows = "".join(
            f"<tr><td>{w.rank}</td><td>{w.slice_id}</td><td>{w.worker_id}</td><td>{html.escape(w.node_id)}</td>"
            f"<td>{html.escape(w.address)}</td><td>{'ready' if w.rank in alive else 'no engine'}</td></tr>"
            for w in self.workers
        )
        head = "".join(
            f"<th scope='col'>{name}</th>" for name in ("rank", "slice", "worker", "node", "address", "state")
        )
        return f"<p>{html.escape(str(self))}</p><table aria-label='Workers'><tr>{head}</tr>{rows}</table>"


def attach(
    queued_resource: QueuedResource | str,
    *,
    deadline: float = START_DEADLINE,
    report: Callable[[str], None] = lambda _: None,
) -> Cluster:
    """Attach to the workers of a queued resource: find the gang that runs there, or start one.

    Args:
        queued_resource: A queued resource, or its name in the project and zone in use.
        deadline: Seconds for SSH to answer on all workers, and again for the gang to start.
        report: Told each step, on the background thread.

    Raises:
        errors.ConnectError: A slice is not READY, or a worker did not answer.
        errors.StartError: An engine, the controller or jax.distributed did not start, or JAX sees other
            devices than the slices have.
    """
    if isinstance(queued_resource, str):
        from multislice_nb.cloud import connect

        queued_resource = connect().get(queued_resource)
    return sync(aattach, queued_resource, deadline=deadline, report=report)


async def aattach(
    queued_resource: QueuedResource,
    *,
    deadline: float = START_DEADLINE,
    report: Callable[[str], None] = lambda _: None,
) -> Cluster:
    """`attach`, to be awaited on the background loop."""
    earlier = _attached.get(queued_resource.name)
    if earlier is not None:
        await earlier.adetach()
    formation = Formation(await _site(queued_resource), report=report)
    await formation.form(deadline=deadline)
    cluster = Cluster(queued_resource, formation)
    _attached[cluster.name] = cluster
    return cluster


def attached(name: str | None = None) -> Cluster:
    """A cluster that this process has attached: by name, or the one attached last.

    Raises:
        errors.ClusterError: There is none, or not that one.
    """
    if name is None and _attached:
        return next(reversed(_attached.values()))
    if name is not None and name in _attached:
        return _attached[name]
    raise errors.ClusterError(
        f"{name} is not attached." if name else "No cluster is attached.",
        fix=f"%multislice attach {name or 'NAME'}, or ms.attach(queued_resource).",
    )


async def _site(queued_resource: QueuedResource) -> Site:
    """Ask the Cloud TPU API for all that a formation must know."""
    cloud = queued_resource.cloud
    await queued_resource.arefresh()
    status = queued_resource.status
    if status.state != "ACTIVE":
        raise errors.ConnectError(
            f"{queued_resource.name} is {status.state}, not ACTIVE.",
            fix=f"Wait for it first: %multislice wait {queued_resource.name}, or qr.wait().",
        )
    nodes = await queued_resource.anodes()
    kind = AcceleratorType.parse(status.accelerator_type)
    workers = workers_of(nodes, workers_per_slice=kind.workers, ssh=cloud.ssh)
    keys: dict[int, str] = {}
    for node in nodes:
        attributes = await cloud.aguest_attributes(node.node_id, "hostkeys/")
        for worker_id, values in enumerate(attributes):
            key = values.get("hostkeys/ssh-ed25519")
            if key:
                keys[node.slice_id * kind.workers + worker_id] = key
    folder = state_home() / "known_hosts" / cloud.project / cloud.zone
    return Site(
        name=queued_resource.name,
        workers=workers,
        accelerator_type=kind,
        node_count=len(nodes),
        tpu=not cloud.is_emulator,
        ssh=cloud.ssh,
        known_hosts=folder / queued_resource.name,
        host_keys=keys,
    )
