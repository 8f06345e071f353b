"""The emulator's one model: queued resources, nodes and operations as the API's own JSON.

Every record holds the canonical document (v2's field names, camelCase) that both API versions are made from,
and beside it what the emulator itself needs to know.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from multislice_nb.emulator.rpc import Json, not_found

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from multislice_nb.emulator.names import Parent
    from multislice_nb.emulator.vm import Vm
    from multislice_nb.tpu import AcceleratorType

T = TypeVar("T")

# The oneof that goes with each state of a queued resource; WAITING_FOR_RESOURCES has none.
STATE_DATA = {
    "CREATING": "creatingData",
    "ACCEPTED": "acceptedData",
    "PROVISIONING": "provisioningData",
    "FAILED": "failedData",
    "DELETING": "deletingData",
    "ACTIVE": "activeData",
    "SUSPENDING": "suspendingData",
    "SUSPENDED": "suspendedData",
}


@dataclass(frozen=True)
class SliceSpec:
    """One slice as it was asked for.

    Attributes:
        node_id: The id of its node.
        accelerator: Its shape.
        node: The node template, canonical.
    """

    node_id: str
    accelerator: AcceleratorType
    node: Json


@dataclass(frozen=True)
class Admission:
    """What a request needs before it may be provisioned.

    Attributes:
        zone: Where.
        generation: Of which TPU generation.
        kind: "on-demand", "spot" or "reserved".
        chips: How many chips, all slices together.
        not_before: The moment from which it may be granted.
        not_after: The moment at which it is given up.
        reservation: The reservation's full name, if it names one.
    """

    zone: str
    generation: str
    kind: str
    chips: int
    not_before: float = 0.0
    not_after: float = float("inf")
    reservation: str = ""

    @property
    def pool(self) -> tuple[str, str, str]:
        """Requests of one pool queue behind each other."""
        return self.zone, self.generation, self.reservation or "shared"


@dataclass(eq=False)
class NodeRecord:
    """A node (one slice) that exists."""

    parent: Parent
    spec: SliceSpec
    data: Json
    admission: Admission
    queued: QueuedRecord | None = None
    slice_id: int = 0
    vms: list[Vm] = field(default_factory=list)
    holds_chips: bool = True
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def name(self) -> str:
        """The full name."""
        return str(self.data["name"])

    @property
    def state(self) -> str:
        """The node's state."""
        return str(self.data["state"])

    @state.setter
    def state(self, value: str) -> None:
        self.data["state"] = value

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata as it is now."""
        return dict(self.data.get("metadata", {}))


@dataclass(eq=False)
class QueuedRecord:
    """A queued resource that exists."""

    parent: Parent
    queued_resource_id: str
    specs: list[SliceSpec]
    data: Json
    admission: Admission
    nodes: dict[int, NodeRecord] = field(default_factory=dict)
    attempts: dict[tuple[int, int], int] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None
    deletion: Operation | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def name(self) -> str:
        """The full name."""
        return str(self.data["name"])

    @property
    def state(self) -> str:
        """The state's name."""
        return str(self.data["state"]["state"])

    def set_state(self, state: str, *, initiator: str = "", error: Json | None = None) -> None:
        """Enter a state, with the data that goes with it."""
        document: Json = {"state": state}
        if state in STATE_DATA:
            document[STATE_DATA[state]] = {"error": error} if error else {}
        if initiator:
            document["stateInitiator"] = initiator
        self.data["state"] = document

    def slices(self) -> list[NodeRecord]:
        """Its nodes in slice order."""
        return [self.nodes[index] for index in sorted(self.nodes)]


@dataclass(eq=False)
class Operation:
    """A long-running operation."""

    name: str
    version: str
    data: Json
    result: tuple[str, Json] | None = None
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self.finished.is_set()


class Store:
    """Everything that exists, by full name."""

    def __init__(self) -> None:
        self.queued: dict[str, QueuedRecord] = {}
        self.nodes: dict[str, NodeRecord] = {}
        self.operations: dict[str, Operation] = {}

    def queued_resource(self, name: str) -> QueuedRecord:
        """The queued resource of that name, or NOT_FOUND."""
        return _found(self.queued, name)

    def node(self, name: str) -> NodeRecord:
        """The node of that name, or NOT_FOUND."""
        return _found(self.nodes, name)

    def operation(self, name: str) -> Operation:
        """The operation of that name, or NOT_FOUND."""
        return _found(self.operations, name)

    def claimed_node_names(self) -> set[str]:
        """Names of nodes that exist or that a queued resource will create."""
        wanted = {
            record.parent.child("nodes", spec.node_id)
            for record in self.queued.values()
            for spec in record.specs
        }
        return wanted | set(self.nodes)

    def vms(self) -> Iterator[Vm]:
        """All VMs."""
        for node in self.nodes.values():
            yield from node.vms


def _found(records: Mapping[str, T], name: str) -> T:
    """The record of that name.

    Raises:
        ApiError: NOT_FOUND.
    """
    record = records.get(name)
    if record is None:
        raise not_found(name)
    return record


def numeric_id() -> str:
    """A server-made id, as JSON writes an int64."""
    return str(secrets.randbits(62) | 1 << 61)


def vms_of(nodes: Iterable[NodeRecord]) -> list[Vm]:
    """The VMs of nodes."""
    return [vm for node in nodes for vm in node.vms]


def copy(document: Json) -> Json:
    """A copy that later changes do not reach."""
    import copy as copying

    result: Any = copying.deepcopy(document)
    return result  # type: ignore[no-any-return]
