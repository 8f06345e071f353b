"""How a gang comes to be: connect, prepare, start, join, check; and how it is found again.

Every step is taken on all workers at once, has a deadline, and names the worker that failed it. A gang that
did not form whole is taken down again.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from typing import TYPE_CHECKING, Any

from multislice_nb import errors
from multislice_nb.cloud.display import counted
from multislice_nb.cluster.bootstrap import prepare
from multislice_nb.cluster.engines import Engines, Found
from multislice_nb.cluster.gang import Gang
from multislice_nb.cluster.inventory import ranks_text
from multislice_nb.cluster.keeper import Keeper
from multislice_nb.cluster.left import LeftCell, find_left
from multislice_nb.cluster.link import Link
from multislice_nb.cluster.reader import Reader
from multislice_nb.cluster.report import result_of
from multislice_nb.cluster.settings import HEARTBEAT, GangSettings
from multislice_nb.cluster.ssh import Connections

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from multislice_nb.cluster.bootstrap import Footing
    from multislice_nb.cluster.result import CellResult
    from multislice_nb.cluster.site import Site

__all__ = ["START_DEADLINE", "Formation"]

START_DEADLINE = 120.0
"""Seconds for SSH to answer on all workers, and again for the gang to start."""

COORDINATOR_PORT = 8476
"""Where JAX's coordinator listens, if it is free: the port that the firewall rules of TPU projects open."""

KNOCK_DEADLINE = 10.0
"""Seconds for that port to answer the other workers: a firewall that drops packets never does."""

LAUNCH = 10.0
"""Seconds for the launch of a controller that is not wanted any more, so that it can be ended."""

_CLIENT_PORTS = ("registration", "control", "mux", "task", "iopub", "notification", "broadcast")


class Formation:
    """The live parts of one attached cluster."""

    def __init__(
        self, site: Site, *, heartbeat: float = HEARTBEAT, report: Callable[[str], None] = lambda _: None
    ) -> None:
        self.site = site
        self.heartbeat = heartbeat
        self.connections = Connections(site.ssh, site.known_hosts, site.proxies)
        self.link: Link | None = None
        self.devices: list[dict[str, Any]] = []
        self.reused = False
        self.dissolved = False
        self.keeper = Keeper(
            self.connections, site.workers, vanished=self._vanished, rejoin=self._rejoin, ask=site.ask
        )
        self._footing: dict[int, Footing] = {}
        self._report = report
        self._controller: Mapping[str, Any] = {}
        self._identities: dict[int, str] = {}

    @property
    def engines(self) -> Engines:
        """The processes on the workers."""
        return Engines(self.connections, self.site.workers, self._footing, self.site.name)

    @property
    def pythons(self) -> dict[int, str]:
        """By rank, the Python that engines run in."""
        return {rank: footing.python for rank, footing in self._footing.items()}

    async def form(self, *, deadline: float) -> None:
        """Connect, and find the gang that lives there or start one.

        Args:
            deadline: Seconds for SSH to answer on all workers, and again for the gang to start.

        Raises:
            errors.ConnectError: A worker did not answer.
            errors.StartError: A part did not start; nothing is left running.
        """
        site = self.site
        self._report(f"connecting to {counted(len(site.workers), 'worker')}")
        await self.connections.open(site.workers, site.host_keys, deadline=deadline, grant=site.grant)
        try:
            self._report("preparing workers")
            self._footing = await prepare(self.connections, site.workers, tpu=site.tpu)
            found, some = await self.engines.find()
            if found is None or not await self._resume(found):
                await self.start(deadline=deadline, clear=some)
            self.keeper.start()
        except BaseException:
            await self.leave()
            raise

    async def _resume(self, found: Found) -> bool:
        """Take up a gang that lives; False if it proved not to be whole after all."""
        self._report("finding the gang that runs there")
        link = self.link = await self._connect(found.client)
        identities = {int(rank): uuid for rank, uuid in found.formed["identities"].items()}
        link.resume(identities)
        self._controller, self._identities = found.client, identities
        if len(link.ranks) != len(self.site.workers):
            await self._disconnect()
            return False
        self.devices = list(found.formed["devices"])
        self.reused = True
        return True

    async def start(self, *, deadline: float, clear: bool = True) -> None:
        """Start a new gang, ending first what is left of an earlier one where `clear` says so.

        Raises:
            errors.StartError: A part did not start; nothing is left running.
        """
        await self.keeper.stop()
        await self._disconnect()
        self.reused = False
        if clear:
            self._report("ending the earlier gang")
            await self.engines.stop(patience=0.5)
        gang = secrets.token_hex(8)
        ranks = range(len(self.site.workers))
        try:
            self._report("starting engines")
            connection = await self._start_processes(gang, deadline)
            self._report(f"waiting for {counted(len(ranks), 'engine')}")
            await self.engines.connect_engines(connection["engine"])
            link = self.link = await self._connect(connection["client"])
            await link.find_ranks(gang, len(ranks), deadline=deadline, check=self.engines.require_alive)
            self._report("joining jax.distributed")
            self.devices = await self._initialize(deadline)
            self._check_devices()
            self._controller, self._identities = connection["client"], link.identities
            await self.engines.remember(
                {"gang": gang, "identities": self._identities, "devices": self.devices}
            )
            self.keeper.start()
        except BaseException:
            with contextlib.suppress(errors.ClusterError):  # the first error is the one to tell
                await self.engines.stop(patience=0.5)
            raise

    async def _start_processes(self, gang: str, deadline: float) -> dict[str, dict[str, Any]]:
        """Start engines and controller side by side; the controller's connection info."""
        environments = {worker.rank: self.site.environment(worker.rank, gang) for worker in self.site.workers}
        controller = asyncio.create_task(self.engines.start_controller(deadline=deadline))
        try:
            await self.engines.start_engines(gang, environments)
            return await controller
        except BaseException:
            await asyncio.wait({controller}, timeout=LAUNCH)  # it would come once all is cleaned up
            controller.cancel()
            await asyncio.gather(controller, return_exceptions=True)
            raise

    async def _initialize(self, deadline: float) -> list[dict[str, Any]]:
        """Join every engine in jax.distributed, once the coordinator's port was seen to answer all of them."""
        leader, ranks = self.site.workers[0], range(len(self.site.workers))
        port = (await self._call({0: ("hold_port", leader.address, COORDINATOR_PORT)}, 30))[0]
        address = f"{leader.address}:{port}"
        knocks = dict.fromkeys(ranks, ("reach_port", leader.address, port, KNOCK_DEADLINE))
        outside = await self._run(knocks, KNOCK_DEADLINE + 20)
        if not outside.ok:
            failed = [error for error in outside.errors if error is not None]
            raise errors.StartError(
                f"{ranks_text(e.worker.rank for e in failed).capitalize()} cannot reach jax.distributed's coordinator "
                f"at {address}: {failed[0].evalue}",
                fix=f"Let the firewall of the VPC network allow TCP port {port} between the workers.",
            )
        requests = {
            rank: ("initialize", address, len(ranks), rank, int(deadline), int(self.heartbeat))
            for rank in ranks
        }
        return await self._call(requests, deadline)

    async def _run(self, requests: Mapping[int, tuple[Any, ...]], deadline: float) -> CellResult:
        gang = Gang(self.require_link(), requests, GangSettings(kill_stuck=True), timeout=deadline)
        await gang.run()
        return result_of(gang.records, self.site.workers)

    async def _call(self, requests: Mapping[int, tuple[Any, ...]], deadline: float) -> list[Any]:
        result = await self._run(requests, deadline)
        if not result.ok:
            error = result.first_error
            tail = await self.engines.log_tail(error.worker.rank) if error else ""
            raise errors.StartError(
                f"{next(iter(requests.values()))[0]} failed: {error}\n{tail}",
                fix="See that nothing else holds the TPU or the coordinator's port there, then attach again.",
            )
        return result.values

    def _check_devices(self) -> None:
        """What JAX sees must be what was asked for, on every worker.

        Raises:
            errors.StartError: Names the first worker that differs, and how.
        """
        site, kind = self.site, self.site.accelerator_type
        expected = {
            "backend": "tpu" if site.tpu else "cpu",
            "device_count": kind.device_count * site.node_count,
            "local_device_count": kind.devices_per_worker,
        }
        for worker, seen in zip(site.workers, self.devices, strict=True):
            wanted = expected | {"process_index": worker.rank}
            if site.node_count > 1:
                wanted["slice_index"] = worker.slice_id
            for name, value in wanted.items():
                if seen[name] != value:
                    raise errors.StartError(
                        f"{worker} has {name} {seen[name]}; {site.node_count} x {kind.name} should give {value}.",
                        fix="Reset that queued resource, or delete and create it, and attach again.",
                    )

    async def _connect(self, client: Mapping[str, Any]) -> Link:
        ports = dict(client)
        for name in _CLIENT_PORTS:
            ports[name] = await self.connections.forward(0, client[name])
        return await Link.connect(ports)

    async def _rejoin(self) -> None:
        """A new link to the same controller, in place of one whose SSH connection broke."""
        lost = self.link
        self.connections.close_forwards()
        made = await self._connect(self._controller)
        if self.link is not lost or lost is None:  # another gang was started meanwhile, or we have left
            await made.close()
            return
        made.resume(self._identities)
        self.link = made
        await lost.close()

    async def _vanished(self, rank: int) -> str:
        return await self.engines.vanished(rank)

    def require_link(self) -> Link:
        """The link to the controller.

        Raises:
            errors.ClusterError: The cluster is detached.
        """
        if self.link is None:
            raise errors.ClusterError(
                f"{self.site.name} is detached.", fix=f"Attach again: %multislice attach {self.site.name}"
            )
        return self.link

    async def _disconnect(self) -> None:
        if self.link is not None:
            link, self.link = self.link, None
            await link.close()
        self.connections.close_forwards()

    async def find_left(self) -> LeftCell | None:
        """A cell that ran here and whose end no notebook has got."""
        return await find_left(self.connections, self.pythons, self.engines.folder)

    def reader(self, shelf: str, request: str) -> Reader:
        """Reads the record of a cell or call from the workers' disks."""
        return Reader(self.connections, self.pythons, self.engines.folder, shelf, request)

    async def leave(self) -> None:
        """Let go of the workers; what runs on them runs on."""
        async with contextlib.AsyncExitStack() as last:  # each, though the one before be interrupted
            last.push_async_callback(self.connections.close)
            last.push_async_callback(self._disconnect)
            await self.keeper.stop()

    async def dissolve(self) -> None:
        """End our processes on all workers, then let go of them."""
        self.dissolved = True
        try:
            await self.keeper.stop()
            await self.engines.stop(patience=0.5)
        finally:
            await self.leave()
