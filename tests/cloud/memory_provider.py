"""A provider that keeps everything in memory: the least that keeps the promises, to begin another one from."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from multislice_nb.cloud import Endpoint, NodeStatus, QueuedResourceRequest, QueuedResourceStatus
from multislice_nb.cloud.provider import REQUEST_LABEL
from multislice_nb.errors import AlreadyExistsError, FailedPreconditionError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from multislice_nb.cloud import Maintenance

ZONE = "memory-1-a"


@dataclass
class _Kept:
    request: QueuedResourceRequest
    request_id: str
    status: QueuedResourceStatus
    nodes: dict[str, NodeStatus] = field(default_factory=dict)


class MemoryProvider:
    """Every request is granted at once, and no slice has a machine behind it."""

    project = "memory"
    is_emulator = False

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}

    async def create_queued_resource(
        self, request: QueuedResourceRequest, *, request_id: str, labels: Mapping[str, str]
    ) -> None:
        """Make it, ACTIVE as it is."""
        known = self._kept.get(request.name)
        if known is not None and known.request_id == request_id:
            return
        if known is not None:
            raise AlreadyExistsError(f"{request.name} exists already.", fix="Use another name.")
        kind = request.slice_type
        status = QueuedResourceStatus(
            name=request.name,
            state="ACTIVE",
            accelerator_type=kind.name,
            node_count=request.node_count,
            node_ids=tuple(request.node_ids),
            zone=ZONE,
            project=self.project,
            create_time=datetime.now(UTC),
            labels={**request.labels, **labels, REQUEST_LABEL: request_id},
        )
        made = _Kept(request, request_id, status)
        for slice_id, node_id in enumerate(status.node_ids):
            addresses = tuple(Endpoint(f"10.{slice_id}.0.{worker}") for worker in range(kind.workers))
            made.nodes[node_id] = NodeStatus(
                node_id,
                slice_id,
                "READY",
                "HEALTHY",
                kind.name,
                addresses,
                zone=ZONE,
                metadata=dict(request.metadata),
                queued_resource=request.name,
            )
        self._kept[request.name] = made

    async def list_queued_resources(self, zone: str) -> tuple[QueuedResourceStatus, ...]:
        """All of them."""
        return tuple(kept.status for kept in self._kept.values()) if zone in {ZONE, "-"} else ()

    async def get_queued_resource(self, name: str, zone: str) -> QueuedResourceStatus:
        """One of them."""
        return self._one(name, zone).status

    async def get_request(self, name: str, zone: str) -> QueuedResourceRequest:
        """What was asked."""
        return self._one(name, zone).request

    async def delete_queued_resource(self, name: str, zone: str, *, force: bool) -> str:
        """Forget it."""
        kept = self._one(name, zone)
        if kept.nodes and not force:
            raise FailedPreconditionError(f"{name} still has nodes.", fix="Delete it with force.")
        del self._kept[name]
        return f"deleted {name}"

    async def reset_queued_resource(self, name: str, zone: str) -> str:
        """There is nothing to restart."""
        return f"reset {self._one(name, zone).status.name}"

    async def perform_maintenance(self, name: str, zone: str, node_ids: Sequence[str]) -> str:
        """There is none."""
        return f"maintained {self._one(name, zone).status.name} {len(node_ids)}"

    async def finish(self, operation: str, doing: str) -> None:
        """Everything is done when it is asked for."""

    async def list_nodes(self, zone: str) -> tuple[NodeStatus, ...]:
        """All nodes."""
        return tuple(
            node for kept in self._kept.values() for node in kept.nodes.values() if zone in {ZONE, "-"}
        )

    async def list_maintenance(self, zone: str) -> Mapping[str, Maintenance]:
        """None is coming."""
        return {}

    async def get_guest_attributes(
        self, node_id: str, zone: str, query_path: str
    ) -> tuple[Mapping[str, str], ...]:
        """A key for each worker."""
        node = self._node(node_id)
        return tuple({f"{query_path}ssh-ed25519": f"{node_id}-{n}"} for n in range(len(node.endpoints)))

    async def set_node_metadata(self, node_id: str, zone: str, metadata: Mapping[str, str]) -> None:
        """Add entries."""
        node = self._node(node_id)
        kept = self._kept[str(node.queued_resource)]
        kept.nodes[node_id] = replace(node, metadata={**node.metadata, **metadata})

    async def list_accelerator_types(self, zone: str) -> tuple[str, ...]:
        """What the tests ask for."""
        return ("v4-8", "v4-16")

    async def list_runtime_versions(self, zone: str) -> tuple[str, ...]:
        """One."""
        return ("tpu-ubuntu2204-base",)

    async def list_zones(self) -> tuple[str, ...]:
        """One."""
        return (ZONE,)

    async def close(self) -> None:
        """There is nothing to let go of."""

    def _one(self, name: str, zone: str) -> _Kept:
        if zone != ZONE or name not in self._kept:
            raise NotFoundError(f"There is no queued resource {name} in {zone}.", fix="List what there is.")
        return self._kept[name]

    def _node(self, node_id: str) -> NodeStatus:
        for kept in self._kept.values():
            if node_id in kept.nodes:
                return kept.nodes[node_id]
        raise NotFoundError(f"There is no node {node_id}.", fix="List what there is.")
