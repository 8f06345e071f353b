"""What the rest of multislice_nb needs of whoever provides slices.

The Cloud TPU API is the first implementation (`client.TpuApi`). Another one, in front of GKE for example, has
to keep these promises, which `tests/cloud/test_provider_contract.py` states as tests:

- `create_queued_resource` returns when the request is accepted, and raises `AlreadyExistsError` for a name
  that is taken; sending the same request twice with the same `request_id` is not an error.
- A status has the labels of its request, and `REQUEST_LABEL` with the `request_id`: names come again.
- `delete_queued_resource` returns an operation once the deletion was accepted; the name is free when
  `finish` returns or `get_queued_resource` raises `NotFoundError`. Without force it refuses while there are nodes.
- Statuses name their nodes in slice order, and endpoints come in worker order.
- Errors are those of `multislice_nb.errors`, nothing of the provider's own library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from multislice_nb.cloud.request import QueuedResourceRequest
    from multislice_nb.cloud.status import Maintenance, NodeStatus, QueuedResourceStatus

__all__ = ["REQUEST_LABEL", "Provider"]

REQUEST_LABEL = "multislice-nb-request"
"""Label with the id of the create call, by which what it made is told from others of the same name."""


@runtime_checkable
class Provider(Protocol):
    """Queued resources and nodes in the zones of one project."""

    @property
    def project(self) -> str:
        """The project everything belongs to."""
        ...

    @property
    def is_emulator(self) -> bool:
        """Whether the slices are processes of this machine."""
        ...

    async def create_queued_resource(
        self, request: QueuedResourceRequest, *, request_id: str, labels: Mapping[str, str]
    ) -> None:
        """Ask for slices; returns when the request is accepted, not when there is capacity."""
        ...

    async def list_queued_resources(self, zone: str) -> tuple[QueuedResourceStatus, ...]:
        """All queued resources of a zone; `-` means all zones."""
        ...

    async def get_queued_resource(self, name: str, zone: str) -> QueuedResourceStatus:
        """One queued resource."""
        ...

    async def get_request(self, name: str, zone: str) -> QueuedResourceRequest:
        """The request that an existing queued resource came from, to make it again."""
        ...

    async def delete_queued_resource(self, name: str, zone: str, *, force: bool) -> str:
        """Delete it, with force its nodes too; returns the operation, for `finish`."""
        ...

    async def reset_queued_resource(self, name: str, zone: str) -> str:
        """Restart all its workers; returns the operation, for `finish`."""
        ...

    async def perform_maintenance(self, name: str, zone: str, node_ids: Sequence[str]) -> str:
        """Bring coming maintenance of these nodes forward to now; returns the operation, for `finish`."""
        ...

    async def finish(self, operation: str, doing: str) -> None:
        """Wait until an operation is done, and raise what it failed with; the caller sets the deadline."""
        ...

    async def list_nodes(self, zone: str) -> tuple[NodeStatus, ...]:
        """All nodes of a zone."""
        ...

    async def list_maintenance(self, zone: str) -> Mapping[str, Maintenance]:
        """Coming maintenance by node, where the provider tells."""
        ...

    async def get_guest_attributes(
        self, node_id: str, zone: str, query_path: str
    ) -> tuple[Mapping[str, str], ...]:
        """What each worker published under a path, in worker order; keys are `namespace/key`."""
        ...

    async def set_node_metadata(self, node_id: str, zone: str, metadata: Mapping[str, str]) -> None:
        """Add these entries to a node's metadata."""
        ...

    async def list_accelerator_types(self, zone: str) -> tuple[str, ...]:
        """What a zone offers."""
        ...

    async def list_runtime_versions(self, zone: str) -> tuple[str, ...]:
        """Software versions that a zone offers."""
        ...

    async def list_zones(self) -> tuple[str, ...]:
        """Zones that have TPUs."""
        ...

    async def close(self) -> None:
        """Let go of every connection; calling it again does nothing."""
        ...
