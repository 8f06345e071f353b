"""What the API does to single nodes: create, delete, stop, start, update, maintenance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multislice_nb.emulator import clock as pace
from multislice_nb.emulator.model import Admission, NodeRecord, SliceSpec, Store
from multislice_nb.emulator.requests import check_metadata, check_node
from multislice_nb.emulator.rpc import ApiError, Json, already_exists, failed_precondition, invalid

if TYPE_CHECKING:
    from multislice_nb.emulator.admission import Admissions
    from multislice_nb.emulator.clock import Clock
    from multislice_nb.emulator.names import Parent
    from multislice_nb.emulator.provisioner import Provisioner
    from multislice_nb.emulator.slices import Slices

Result = tuple[str, Json]

# What UpdateNode may change (the client's documentation and gcloud's update command).
_UPDATABLE = {"description", "labels", "metadata", "tags", "dataDisks", "networkConfig", "runtimeVersion"}


class Nodes:
    """Nodes as the API's users handle them."""

    def __init__(
        self, store: Store, clock: Clock, slices: Slices, admissions: Admissions, provisioner: Provisioner
    ) -> None:
        self._store = store
        self._clock = clock
        self._slices = slices
        self._admissions = admissions
        self._provisioner = provisioner

    def request(self, parent: Parent, node_id: str, body: Json) -> NodeRecord:
        """A new node of its own, in CREATING.

        Raises:
            ApiError: It is wrong, exists, or there is no capacity: nodes of their own do not queue.
        """
        accelerator, template = check_node(body, parent, "node")
        name = parent.child("nodes", node_id)
        if name in self._store.claimed_node_names():
            raise already_exists(name)
        scheduling = body.get("schedulingConfig", {})
        spot = scheduling.get("spot") or scheduling.get("preemptible")
        kind = "spot" if spot else "reserved" if scheduling.get("reserved") else "on-demand"
        admission = Admission(parent.location, accelerator.generation.name, kind, accelerator.chips)
        held = [node.admission for node in self._store.nodes.values() if node.parent == parent]
        self._admissions.check_chips(admission, held)
        if not self._admissions.try_take(admission, accelerator.chips):
            raise ApiError(
                "RESOURCE_EXHAUSTED",
                f'There is no more capacity in the zone "{parent.location}"; '
                "you can try in another zone where Cloud TPU Nodes are offered.",
            )
        return self._slices.make(parent, SliceSpec(node_id, accelerator, template), admission, None, 0)

    async def create(self, node: NodeRecord) -> Result:
        """Bring a new node up."""
        async with node.lock:
            await self._clock.step(pace.CREATE_NODE)
            await self._slices.boot([node], during="CREATING")
        return "Node", node.data

    async def delete(self, node: NodeRecord) -> Result:
        """Take a node away."""
        async with node.lock:
            await self._slices.remove([node])
        if node.queued is not None:
            await self._provisioner.node_removed(node.queued)
        return "Empty", {}

    def check_single(self, node: NodeRecord, verb: str) -> None:
        """Refuse what only single-VM nodes can do.

        Raises:
            ApiError: FAILED_PRECONDITION.
        """
        workers = node.spec.accelerator.workers
        if workers > 1:
            text = f"A TPU slice with several VMs cannot be {verb}; {node.name} has {workers}. Delete it instead."
            raise failed_precondition(node.name, text)

    def check_state(self, node: NodeRecord, wanted: str, verb: str) -> None:
        """Refuse what the node's state does not allow.

        Raises:
            ApiError: FAILED_PRECONDITION.
        """
        if node.state != wanted:
            text = f"Node {node.name} is {node.state}; only a {wanted} node can be {verb}."
            raise failed_precondition(node.name, text)

    async def stop(self, node: NodeRecord) -> Result:
        """Turn a node off; its disk stays."""
        async with node.lock:
            self.check_state(node, "READY", "stopped")
            await self._slices.halt([node], "STOPPING")
            await self._clock.step(pace.STOP_NODE)
            node.state = "STOPPED"
        return "Node", node.data

    async def start(self, node: NodeRecord) -> Result:
        """Turn a node on again."""
        async with node.lock:
            self.check_state(node, "STOPPED", "started")
            node.state = "STARTING"
            await self._clock.step(pace.START_NODE)
            await self._slices.boot([node], during="STARTING")
        return "Node", node.data

    def check_update(self, mask: str, changes: Json) -> list[str]:
        """The fields to change.

        Raises:
            ApiError: INVALID_ARGUMENT for a field that cannot be changed.
        """
        fields = [_camel(path.split(".", 1)[0]) for path in mask.split(",") if path]
        if not fields:
            raise invalid("update_mask", "update_mask is required.")
        for field in fields:
            if field not in _UPDATABLE:
                raise invalid("update_mask", f"Field {field!r} of a node cannot be updated.")
        if "metadata" in fields:
            check_metadata(changes.get("metadata", {}), "node.metadata")
        return fields

    async def update(self, node: NodeRecord, fields: list[str], changes: Json) -> Result:
        """Change fields of a node; running VMs see new metadata at once."""
        async with node.lock:
            for field in fields:
                if field in changes:
                    node.data[field] = changes[field]
                else:
                    node.data.pop(field, None)
        return "Node", node.data

    async def maintain(self, node: NodeRecord) -> Result:
        """Perform maintenance now: the node restarts."""
        async with node.lock:
            self.check_state(node, "READY", "maintained")
            await self._slices.restart([node])
            node.data.pop("upcomingMaintenance", None)
        return "Node", node.data


def _camel(path: str) -> str:
    head, *rest = path.split("_")
    return head + "".join(part.title() for part in rest)
