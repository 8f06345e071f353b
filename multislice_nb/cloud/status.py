"""What came back: queued resources and nodes as they were when the API was asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from multislice_nb.cloud.display import counted, html_table
from multislice_nb.cloud.times import format_time, short
from multislice_nb.errors import AcceleratorTypeError
from multislice_nb.tpu import AcceleratorType

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "BOOTING_STATES",
    "DEAD_STATES",
    "ENDING_STATES",
    "WAITING_STATES",
    "Endpoint",
    "Maintenance",
    "NodeStatus",
    "QueuedResourceStatus",
]

WAITING_STATES = frozenset({"CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES"})
"""Queued for capacity. Older requests say ACCEPTED where newer ones say WAITING_FOR_RESOURCES."""
BOOTING_STATES = frozenset({"PROVISIONING"})
"""Capacity was found and the slices are being made."""
DEAD_STATES = frozenset({"FAILED", "SUSPENDED"})
"""It holds its name and quota, and does not become ACTIVE by itself."""
ENDING_STATES = frozenset({"DELETING", "SUSPENDING"})
"""On its way out."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where one worker is reached.

    Attributes:
        ip_address: Its address inside the VPC network.
        external_ip: Its address outside, if it has one.
        port: Port the API names; the emulator's SSH port, and of no use on Google Cloud.
    """

    ip_address: str
    external_ip: str | None = None
    port: int = 22


@dataclass(frozen=True, slots=True)
class Maintenance:
    """Maintenance that is coming to a node.

    Attributes:
        kind: SCHEDULED or UNSCHEDULED.
        status: PENDING or ONGOING.
        start: When it starts at the earliest.
        can_reschedule: Whether `perform_maintenance` can bring it forward.
    """

    kind: str
    status: str
    start: datetime | None = None
    can_reschedule: bool = False

    def __str__(self) -> str:
        when = f" from {format_time(self.start)}" if self.start else ""
        return f"{self.kind.lower()} maintenance {self.status.lower()}{when}"


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One slice as the API describes it.

    Attributes:
        node_id: Its name.
        slice_id: Its index in the queued resource.
        state: CREATING, READY, PREEMPTED, REPAIRING, …
        health: HEALTHY, UNHEALTHY_MAINTENANCE, …, or HEALTH_UNSPECIFIED.
        accelerator_type: As `v4-16`.
        endpoints: One for each worker, in worker order.
        zone: Where it is.
        runtime_version: Software of its workers.
        health_description: The API's words about its health.
        labels: Its labels.
        metadata: Its metadata, kept out of the repr as scripts may hold secrets.
        queued_resource: Name of its queued resource, if it has one.
        create_time: When it was made.
        maintenance: Coming maintenance, where the API tells.
    """

    node_id: str
    slice_id: int
    state: str
    health: str
    accelerator_type: str
    endpoints: tuple[Endpoint, ...]
    zone: str = ""
    runtime_version: str = ""
    health_description: str = ""
    labels: Mapping[str, str] = field(default_factory=dict, repr=False)
    metadata: Mapping[str, str] = field(default_factory=dict, repr=False)
    queued_resource: str | None = None
    create_time: datetime | None = None
    maintenance: Maintenance | None = None

    @property
    def is_ready(self) -> bool:
        """READY, and not in maintenance."""
        return self.state == "READY" and self.health != "UNHEALTHY_MAINTENANCE"

    @property
    def is_lost(self) -> bool:
        """Preempted or terminated: its workers are gone."""
        return self.state in {"PREEMPTED", "TERMINATED"}

    def row(self) -> tuple[str, ...]:
        """Cells of a table: node, slice, type, state, health, workers."""
        hosts = ", ".join(endpoint.external_ip or endpoint.ip_address for endpoint in self.endpoints)
        health = "" if self.health == "HEALTH_UNSPECIFIED" else self.health
        return self.node_id, str(self.slice_id), self.accelerator_type, self.state, health, hosts

    def __str__(self) -> str:
        coming = f" · {self.maintenance}" if self.maintenance else ""
        return f"{self.node_id} (slice {self.slice_id}) {self.accelerator_type} {self.state}{coming}"

    def _repr_html_(self) -> str:
        return html_table(("node", "slice", "type", "state", "health", "workers"), [self.row()])


@dataclass(frozen=True, slots=True)
class QueuedResourceStatus:
    """One queued resource as the API described it.

    Attributes:
        name: Its id.
        state: WAITING_FOR_RESOURCES, PROVISIONING, ACTIVE, …
        state_initiator: USER or SERVICE, where the API tells, else empty.
        since: Since when it is in that state, as far as this tool saw it.
        accelerator_type: Type of each slice.
        node_count: Number of slices.
        node_ids: Their names, in slice order.
        zone: Where it is.
        project: Whose it is.
        capacity: on-demand, spot, reserved or best-effort.
        runtime_version: Software of the workers.
        error: Why it failed, in the API's words.
        create_time: When it was asked for.
        valid_until: When the request gives up by itself.
        labels: Labels of its nodes.
    """

    name: str
    state: str
    state_initiator: str = ""
    since: datetime | None = None
    accelerator_type: str = ""
    node_count: int = 1
    node_ids: tuple[str, ...] = ()
    zone: str = ""
    project: str = ""
    capacity: str = "on-demand"
    runtime_version: str = ""
    error: str | None = None
    create_time: datetime | None = None
    valid_until: datetime | None = None
    labels: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def is_active(self) -> bool:
        """All its slices are there."""
        return self.state == "ACTIVE"

    @property
    def is_waiting(self) -> bool:
        """Queued, nothing is provisioned yet."""
        return self.state in WAITING_STATES

    @property
    def is_dead(self) -> bool:
        """FAILED or SUSPENDED: it holds name and quota until it is deleted."""
        return self.state in DEAD_STATES

    @property
    def slice_type(self) -> AcceleratorType | None:
        """The accelerator type, or None when it is one this version does not know."""
        try:
            return AcceleratorType.parse(self.accelerator_type)
        except AcceleratorTypeError:
            return None

    @property
    def chips(self) -> int | None:
        """Chips of all slices together, or None when the type is unknown."""
        return self.slice_type.chips * self.node_count if self.slice_type else None

    @property
    def workers(self) -> int | None:
        """Workers of all slices together, or None when the type is unknown."""
        return self.slice_type.workers * self.node_count if self.slice_type else None

    def time_in_state(self, now: datetime | None = None) -> float | None:
        """Seconds since it entered its state, as far as this tool saw it."""
        if self.since is None:
            return None
        return max(0.0, ((now or datetime.now(UTC)) - self.since).total_seconds())

    @property
    def advice(self) -> str | None:
        """After 15 minutes of waiting or booting, what the overview advises; None before that."""
        from multislice_nb.cloud.advice import patience

        return patience(self)

    @property
    def shape(self) -> str:
        """As `2 x v4-16`, or `v4-16`."""
        return (
            f"{self.node_count} x {self.accelerator_type}" if self.node_count > 1 else self.accelerator_type
        )

    def row(self) -> tuple[str, ...]:
        """Cells of a table, gcloud's columns first: name, zone, nodes, type, state, for, capacity, chips."""
        seconds = self.time_in_state()
        return (
            self.name,
            self.zone,
            str(self.node_count),
            self.accelerator_type,
            self.state,
            "" if seconds is None else short(seconds),
            self.capacity,
            str(self.chips or ""),
        )

    def __str__(self) -> str:
        chips = f" · {counted(self.chips, 'chip')} · {counted(self.workers, 'worker')}" if self.chips else ""
        seconds = self.time_in_state()
        lasting = "" if seconds is None else f" for {short(seconds)}"
        reason = f" · {self.error}" if self.error else ""
        until = ""
        if self.valid_until and self.is_waiting:
            left = self.valid_until - datetime.now(UTC)
            until = f" · gives up in {short(left)}" if left.total_seconds() >= 1 else " · giving up"
        return f"{self.name}   {self.shape}{chips} · {self.capacity} · {self.state}{lasting}{until}{reason}"

    def _repr_html_(self) -> str:
        header = ("name", "zone", "nodes", "accelerator type", "state", "for", "capacity", "chips")
        return html_table(header, [self.row()], caption=self.error or "")
