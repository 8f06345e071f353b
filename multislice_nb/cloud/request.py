"""What is asked for: one queued resource, checked as a whole before anything is sent.

The names are gcloud's flags. A request that exists is valid: all faults are found at once when it is made.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from multislice_nb.cloud import checks
from multislice_nb.cloud.display import counted
from multislice_nb.cloud.field_types import words, wrong_types
from multislice_nb.cloud.kinds import capacity_name, generation_name
from multislice_nb.cloud.times import format_duration, format_time
from multislice_nb.errors import InvalidRequestError
from multislice_nb.tpu import AcceleratorType

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta
    from pathlib import Path

__all__ = ["DataDisk", "QueuedResourceRequest"]


@dataclass(frozen=True, slots=True)
class DataDisk:
    """A disk attached to every worker.

    Attributes:
        source: Full name, `projects/…/zones/…/disks/…`.
        mode: `read-write` or `read-only`; several workers can share a disk only when it is read-only.
    """

    source: str
    mode: str = "read-write"


@dataclass(frozen=True, kw_only=True)
class QueuedResourceRequest:
    """A request for 1 to 256 slices, which the Cloud TPU API queues until there is capacity.

    Attributes:
        name: Id of the queued resource.
        accelerator_type: What each slice is, as `v4-16`; or give `type` and `topology` instead.
        type: Generation as the API calls it (`v4`, `v5litepod`, `v5p`, `v6e`), with `topology`.
        topology: Chips along each axis, as `2x2x2`, with `type`.
        runtime_version: Software of the workers; the type's own when None.
        force: Accept a runtime version that is not made for the accelerator type.
        node_count: Slices, 1 to 256.
        node_id: Name of the node when there is one; the queued resource's name when None.
        node_prefix: Nodes are named prefix-0, prefix-1, …; the queued resource's name when None.
        project: Project id; the connection's when None.
        zone: Zone; the connection's when None.
        spot: Spot capacity: cheaper, and can be preempted.
        reserved: Reserved capacity.
        reservation: Name of a reservation, full or short.
        reservation_host: Who holds the reservation when it is shared: `projects/…`, `folders/…` or
            `organizations/…`.
        guaranteed: Only at the guaranteed tier.
        min_duration: With the guaranteed tier, only where capacity lasts that long.
        best_effort: At the best effort tier (v2alpha1).
        network: VPC network; `default` when None.
        subnetwork: VPC subnetwork.
        internal_ips: Give the workers no external addresses.
        cidr_range: A /29 range for the addresses.
        tags: Network tags, which firewall rules refer to.
        labels: Labels, for billing and filters.
        metadata: Metadata of the workers.
        startup_script: A script's text, or its file as a Path; runs at every boot.
        service_account: Email address of the workers' service account.
        scopes: Its scopes.
        data_disks: Disks to attach.
        shielded_secure_boot: Secure boot.
        autocheckpoint_enabled: Checkpoint at maintenance (v2alpha1).
        workload_type: THROUGHPUT_OPTIMIZED or AVAILABILITY_OPTIMIZED (v2alpha1).
        description: Free text.
        valid_after_duration: Not before that long from now; a timedelta or gcloud's `6h`.
        valid_after_time: Not before then; a datetime or ISO 8601.
        valid_until_duration: Give up after that long.
        valid_until_time: Give up then.
        api_version: `v2`, or `v2alpha1` which some fields need and then becomes the version by itself.

    Raises:
        InvalidRequestError: Everything that is wrong with it, each with its fix.
    """

    name: str
    accelerator_type: str | None = None
    type: str | None = None
    topology: str | None = None
    runtime_version: str | None = None
    force: bool = field(default=False, compare=False)
    node_count: int = 1
    node_id: str | None = None
    node_prefix: str | None = None
    project: str | None = None
    zone: str | None = None
    spot: bool = False
    reserved: bool = False
    reservation: str | None = None
    reservation_host: str | None = None
    guaranteed: bool = False
    min_duration: timedelta | str | None = None
    best_effort: bool = False
    network: str | None = None
    subnetwork: str | None = None
    internal_ips: bool = False
    cidr_range: str | None = None
    tags: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict, repr=False)  # scripts may hold secrets
    startup_script: str | Path | None = field(default=None, repr=False)
    service_account: str | None = None
    scopes: tuple[str, ...] = ()
    data_disks: tuple[DataDisk, ...] = ()
    shielded_secure_boot: bool = False
    autocheckpoint_enabled: bool = False
    workload_type: str | None = None
    description: str | None = None
    valid_after_duration: timedelta | str | None = None
    valid_after_time: datetime | str | None = None
    valid_until_duration: timedelta | str | None = None
    valid_until_time: datetime | str | None = None
    api_version: str = "v2"

    def __post_init__(self) -> None:
        mistyped = wrong_types(self)
        if mistyped:  # nothing can be read from them
            raise _refusal(str(self.name), mistyped)
        values: dict[str, Any] = {name: getattr(self, name) for name in self.__dataclass_fields__}
        values["tags"] = words(values["tags"])
        values["scopes"] = words(values["scopes"])
        values["data_disks"] = tuple(
            disk if isinstance(disk, DataDisk) else DataDisk(**disk) for disk in values["data_disks"]
        )
        faults = checks.normalise(values)
        faults += checks.faults_of(values)
        if faults:
            raise _refusal(str(self.name), faults)
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __hash__(self) -> int:
        return hash((self.name, self.project, self.zone, self.accelerator_type, self.node_count))

    @property
    def slice_type(self) -> AcceleratorType:
        """The accelerator type of each slice, whichever way it was given."""
        if self.accelerator_type:
            return AcceleratorType.parse(self.accelerator_type)
        return AcceleratorType.from_topology(generation_name(str(self.type)), str(self.topology))

    @property
    def chips(self) -> int:
        """Chips of all slices together."""
        return self.slice_type.chips * self.node_count

    @property
    def capacity(self) -> str:
        """`on-demand`, `spot`, `reserved` or `best-effort`."""
        return capacity_name(
            spot=self.spot,
            reserved=self.reserved or bool(self.reservation or self.reservation_host),
            best_effort=self.best_effort,
        )

    @property
    def node_ids(self) -> tuple[str, ...]:
        """The names the nodes will have, in slice order."""
        if self.node_count == 1:
            return (self.node_id or self.name,)
        prefix = self.node_prefix or self.name
        return tuple(f"{prefix}-{index}" for index in range(self.node_count))

    def replace(self, **changes: Any) -> Self:
        """The same request with some fields changed, checked again; what is asked for as another type is that alone."""
        own: dict[str, Any] = {}
        if changes.get("accelerator_type"):
            own |= {"type": None, "topology": None}
        elif changes.get("type") or changes.get("topology"):
            own |= {"accelerator_type": None}
        if own and self.runtime_version == self.slice_type.runtime_version:
            own |= {"runtime_version": None}
        return replace(self, **{**own, **changes})

    @classmethod
    def from_gcloud(cls, text: str, variables: Mapping[str, str] | None = None) -> QueuedResourceRequest:
        """From a pasted `gcloud compute tpus queued-resources create …`; see `notation.from_gcloud`."""
        from multislice_nb.cloud.notation import from_gcloud

        return from_gcloud(text, variables)

    @classmethod
    def from_rest(
        cls, body: Mapping[str, Any] | str | Path, name: str | None = None
    ) -> QueuedResourceRequest:
        """From the JSON body of a create call, or a curl command; see `rest.from_rest`."""
        from multislice_nb.cloud.rest import from_rest

        return from_rest(body, name)

    def to_gcloud(self) -> str:
        """The gcloud command that asks for the same."""
        from multislice_nb.cloud.notation import to_gcloud

        return to_gcloud(self)

    def to_rest(self) -> dict[str, Any]:
        """The JSON body of the create call that asks for the same."""
        from multislice_nb.cloud.wire import to_json

        return to_json(self)

    def to_curl(self) -> str:
        """The curl command that sends it."""
        from multislice_nb.cloud.rest import to_curl

        return to_curl(self)

    def __str__(self) -> str:
        slices = f"{self.node_count} x " if self.node_count > 1 else ""
        kind = self.slice_type
        until = self.valid_until_duration or self.valid_until_time
        parts = [
            f"{slices}{kind.name}",
            counted(self.chips, "chip"),
            counted(kind.workers * self.node_count, "worker"),
            self.capacity,
            *([self.zone] if self.zone else []),
            *([f"gives up {_when(until)}"] if until else []),
        ]
        return f"{self.name}   {' · '.join(parts)}"


def _when(until: Any) -> str:
    return format_time(until) if hasattr(until, "tzinfo") else f"after {format_duration(until)}"


def _refusal(name: str, faults: list[checks.Fault]) -> InvalidRequestError:
    if len(faults) == 1 and faults[0].error is not None:
        return faults[0].error
    return InvalidRequestError.of_faults(
        f"The request for {name}" if name else "The request", [(fault.what, fault.fix) for fault in faults]
    )
