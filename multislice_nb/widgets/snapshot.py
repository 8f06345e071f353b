"""What a panel shows, frozen: taken on the background loop, drawn on the kernel's."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from multislice_nb.errors import MultisliceError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from multislice_nb.cloud import Cloud, NodeStatus, QueuedResourceStatus, StateChange
    from multislice_nb.cluster import Cluster
    from multislice_nb.widgets.session import Session

__all__ = ["ClusterLook", "Snapshot", "WorkerLook", "take"]


@dataclass(frozen=True, slots=True)
class WorkerLook:
    """One worker.

    Attributes:
        rank: JAX's process id.
        slice_id: Which slice.
        worker_id: Which worker of the slice.
        node_id: The slice's name.
        address: Where it is reached.
        state: ready, running, behind, lost, or its node's state.
        said: The end of the last line that it printed.
        said_at: When, in seconds since the epoch; None before it printed anything.
    """

    rank: int
    slice_id: int
    worker_id: int
    node_id: str
    address: str
    state: str
    said: str = ""
    said_at: float | None = None

    @property
    def name(self) -> str:
        """As people say it."""
        return f"rank {self.rank} (slice {self.slice_id}, worker {self.worker_id})"


@dataclass(frozen=True, slots=True)
class ClusterLook:
    """The workers of one queued resource.

    Attributes:
        name: Its name.
        summary: Its own words about itself.
        workers: In rank order.
        attached: Whether cells can run on them.
    """

    name: str
    summary: str
    workers: tuple[WorkerLook, ...]
    attached: bool = True


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything at one moment.

    Attributes:
        connection: The connection in a line; empty when there is none.
        queued_resources: Those of its zone.
        nodes: By queued resource, in slice order.
        timelines: By queued resource.
        clusters: The attached ones, the current one first.
        problem: Why nothing could be learned this time.
        at: When.
    """

    connection: str = ""
    queued_resources: tuple[QueuedResourceStatus, ...] = ()
    nodes: Mapping[str, tuple[NodeStatus, ...]] = field(default_factory=dict)
    timelines: Mapping[str, tuple[StateChange, ...]] = field(default_factory=dict)
    clusters: tuple[ClusterLook, ...] = ()
    problem: str = ""
    at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def status(self, name: str) -> QueuedResourceStatus | None:
        """The queued resource of that name."""
        return next((status for status in self.queued_resources if status.name == name), None)

    def cluster(self, name: str | None) -> ClusterLook | None:
        """The cluster of that name, or the current one."""
        return next((one for one in self.clusters if name in {None, one.name}), None)

    @property
    def with_workers(self) -> tuple[str, ...]:
        """What has workers to show: attached clusters first, then queued resources whose slices are there."""
        others = (name for name, nodes in self.nodes.items() if any(node.endpoints for node in nodes))
        return tuple(dict.fromkeys([*(one.name for one in self.clusters), *others]))

    def look(self, name: str) -> ClusterLook | None:
        """The workers of a cluster, or of a queued resource that nobody attached to."""
        status = self.status(name)
        return self.cluster(name) or (
            _unattached(status, self.nodes.get(name, ())) if status is not None else None
        )


async def take(session: Session) -> Snapshot:
    """Look at everything. An API that does not answer is a problem that the panel shows, not a failure of it."""
    cloud = session.cloud
    if cloud is None:
        return Snapshot(clusters=_clusters(session, {}))
    connection = str(cloud).splitlines()[0]
    try:
        return await _look(session, cloud, connection)
    except MultisliceError as error:
        return Snapshot(connection=connection, clusters=_clusters(session, {}), problem=str(error))


async def _look(session: Session, cloud: Cloud, connection: str) -> Snapshot:
    listed = await cloud.alist()
    session.names = listed.names
    states: dict[str, str] = {}
    nodes: dict[str, tuple[NodeStatus, ...]] = {}
    found = {node.node_id: node for node in await cloud.anodes()} if listed else {}
    for status in listed.statuses:
        own = tuple(found[node_id] for node_id in status.node_ids if node_id in found)
        nodes[status.name] = own
        states |= {node.node_id: node.state for node in own}
    return Snapshot(
        connection=connection,
        queued_resources=listed.statuses,
        nodes=nodes,
        timelines={handle.name: handle.timeline() for handle in listed},
        clusters=_clusters(session, states),
    )


def _clusters(session: Session, nodes: Mapping[str, str]) -> tuple[ClusterLook, ...]:
    return tuple(_cluster(cluster, nodes) for cluster in session.clusters())


def _cluster(cluster: Cluster, nodes: Mapping[str, str]) -> ClusterLook:
    alive = set(cluster.alive)
    asked, running = cluster.running
    last = cluster.journal.last
    nothing: tuple[float | None, str] = (None, "")
    workers = tuple(
        WorkerLook(
            worker.rank,
            worker.slice_id,
            worker.worker_id,
            worker.node_id,
            worker.address,
            _state(
                alive=worker.rank in alive,
                node=nodes.get(worker.node_id, "READY"),
                running=worker.rank in running,
                others_ended=len(running) < len(asked),
            ),
            said=last.get(worker.rank, nothing)[1],
            said_at=last.get(worker.rank, nothing)[0],
        )
        for worker in cluster.workers
    )
    return ClusterLook(cluster.name, str(cluster), workers)


def _state(*, alive: bool, node: str, running: bool, others_ended: bool) -> str:
    if not alive:
        return "lost" if node == "READY" else node
    if running:
        return "behind" if others_ended else "running"
    return "ready"


def _unattached(status: QueuedResourceStatus, nodes: Sequence[NodeStatus]) -> ClusterLook:
    workers = []
    for node in nodes:
        for worker_id, endpoint in enumerate(node.endpoints):
            rank = node.slice_id * len(node.endpoints) + worker_id
            workers.append(
                WorkerLook(rank, node.slice_id, worker_id, node.node_id, endpoint.ip_address, node.state)
            )
    return ClusterLook(
        status.name, f"{len(workers)} workers of {status.shape}, not attached", tuple(workers), attached=False
    )
