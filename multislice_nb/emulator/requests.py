"""Reading what is asked for: a create request becomes slices, or an error that names the field at fault."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from multislice_nb.emulator.clock import parse_duration, parse_timestamp
from multislice_nb.emulator.model import Admission, SliceSpec, copy
from multislice_nb.emulator.names import check_node_id, parse_name, parse_parent
from multislice_nb.emulator.rpc import ApiError, Json, invalid
from multislice_nb.emulator.zones import available_runtime_versions, check_runtime_version, zones_of
from multislice_nb.errors import AcceleratorTypeError
from multislice_nb.tpu import GENERATIONS, AcceleratorType

if TYPE_CHECKING:
    from multislice_nb.emulator.names import Parent

MAX_SLICES = 256
# Compute Engine's limits for an instance's metadata.
_MAX_METADATA_VALUE = 256 * 1024
_MAX_METADATA = 512 * 1024
_METADATA_KEY = re.compile(r"[A-Za-z0-9_-]{1,128}")
_TAG = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")
_LABEL_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
_OUTPUT_ONLY = ("name", "state", "createTime", "networkEndpoints", "id", "health", "healthDescription")


def accelerator_of(node: Json, parent: Parent, field: str) -> AcceleratorType:
    """The slice that a node template asks for.

    Raises:
        ApiError: INVALID_ARGUMENT where there is no such slice, or not in this zone or API.
    """
    config, name = node.get("acceleratorConfig"), node.get("acceleratorType", "")
    if bool(name) == bool(config):
        raise invalid(
            f"{field}.accelerator_type", "Exactly one of accelerator_type and accelerator_config is needed."
        )
    try:
        if config:
            accelerator = AcceleratorType.from_topology(
                _generation(config, field), config.get("topology", "")
            )
        else:
            accelerator = AcceleratorType.parse(name.rsplit("/", 1)[-1])
    except AcceleratorTypeError as error:
        raise invalid(f"{field}.accelerator_type", str(error).replace("\n", " ")) from error
    zones = zones_of(accelerator.generation)
    if parent.location not in zones:
        where = f"it is offered in {', '.join(zones)}" if zones else "it is not offered in the Cloud TPU API"
        text = f"Accelerator type {accelerator.name!r} is not available in zone {parent.location!r}; {where}."
        raise invalid(f"{field}.accelerator_type", text)
    return accelerator


def _generation(config: Json, field: str) -> str:
    wanted = config.get("type", "")
    known = {generation.api_type: generation.name for generation in GENERATIONS}
    if wanted not in known:
        raise invalid(f"{field}.accelerator_config.type", f"Unknown accelerator_config.type {wanted!r}.")
    return known[wanted]


def check_node(node: Json, parent: Parent, field: str) -> tuple[AcceleratorType, Json]:
    """Check a node template, and return its shape and the canonical template.

    Raises:
        ApiError: INVALID_ARGUMENT that names the field.
    """
    accelerator = accelerator_of(node, parent, field)
    version = node.get("runtimeVersion", "")
    if not version:
        raise invalid(f"{field}.runtime_version", "runtime_version is required.")
    if not check_runtime_version(version):
        known = ", ".join(available_runtime_versions(parent.location))
        raise invalid(
            f"{field}.runtime_version", f"Runtime version {version!r} does not exist; there are {known}."
        )
    for tag in node.get("tags", []):
        if not _TAG.fullmatch(tag):
            raise invalid(f"{field}.tags", f"Invalid network tag {tag!r}: it must match {_TAG.pattern}.")
    for key, value in node.get("labels", {}).items():
        if not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
            raise invalid(f"{field}.labels", f"Invalid label {key!r}: {value!r}.")
    check_metadata(node.get("metadata", {}), f"{field}.metadata")
    template = {key: value for key, value in copy(node).items() if key not in _OUTPUT_ONLY}
    return accelerator, template


def check_metadata(metadata: dict[str, str], field: str) -> None:
    """Check keys and sizes as Compute Engine does.

    Raises:
        ApiError: INVALID_ARGUMENT.
    """
    for key, value in metadata.items():
        if not _METADATA_KEY.fullmatch(key):
            raise invalid(field, f"Invalid metadata key {key!r}: it must match {_METADATA_KEY.pattern}.")
        if len(value) > _MAX_METADATA_VALUE:
            raise invalid(
                field, f"The metadata value of {key!r} is larger than {_MAX_METADATA_VALUE} characters."
            )
    if sum(len(key) + len(value) for key, value in metadata.items()) > _MAX_METADATA:
        raise invalid(field, f"The metadata is larger than {_MAX_METADATA} characters.")


def expand(body: Json, parent: Parent, queued_resource_id: str) -> list[SliceSpec]:
    """The slices that a queued resource asks for, one by one.

    Raises:
        ApiError: INVALID_ARGUMENT.
    """
    entries = body.get("tpu", {}).get("nodeSpec", [])
    if not entries:
        raise invalid("queued_resource.tpu.node_spec", "A queued resource needs at least one node_spec.")
    specs = [
        spec
        for entry in entries
        for spec in _expand_entry(entry, parent, queued_resource_id, several=len(entries) > 1)
    ]
    if len(specs) > MAX_SLICES:
        raise invalid(
            "queued_resource.tpu.node_spec", f"At most {MAX_SLICES} slices; {len(specs)} were asked for."
        )
    if len({spec.node_id for spec in specs}) < len(specs):
        raise invalid("queued_resource.tpu.node_spec", "Node ids must differ from each other.")
    if len({spec.accelerator.name for spec in specs}) > 1:
        raise invalid("queued_resource.tpu.node_spec", "All slices must be of one accelerator type.")
    return specs


def _expand_entry(entry: Json, parent: Parent, queued_resource_id: str, *, several: bool) -> list[SliceSpec]:
    field = "queued_resource.tpu.node_spec"
    if entry.get("parent") and parse_parent(entry["parent"], f"{field}.parent") != parent:
        raise invalid(f"{field}.parent", "node_spec.parent must be the queued resource's own parent.")
    accelerator, template = check_node(entry.get("node", {}), parent, f"{field}.node")
    params = entry.get("multisliceParams") or entry.get("multiNodeParams")
    node_id = entry.get("nodeId", "")
    if params and node_id:
        raise invalid(field, "Only one of node_id and multislice_params may be set.")
    if not params:
        ids = [check_node_id(node_id or queued_resource_id, f"{field}.node_id")]
    else:
        ids = _slice_ids(params, queued_resource_id, f"{field}.multislice_params")
    if (several or len(ids) > 1) and not accelerator.generation.multislice:
        raise invalid(field, f"Multislice needs TPU v4 or later; {accelerator.name} has single slices only.")
    return [SliceSpec(node_id, accelerator, template) for node_id in ids]


def _slice_ids(params: Json, queued_resource_id: str, field: str) -> list[str]:
    count = int(params.get("nodeCount", 0))
    if not 2 <= count <= MAX_SLICES:
        raise invalid(
            f"{field}.node_count", f"node_count must be greater than 1 and at most {MAX_SLICES}; not {count}."
        )
    prefix = params.get("nodeIdPrefix") or queued_resource_id
    check_node_id(prefix, f"{field}.node_id_prefix")
    return [check_node_id(f"{prefix}-{index}", f"{field}.node_id_prefix") for index in range(count)]


def admission_of(body: Json, specs: list[SliceSpec], parent: Parent, now: float) -> Admission:
    """What has to be true before the request may be granted.

    Raises:
        ApiError: INVALID_ARGUMENT.
    """
    not_before, not_after = _timing(body.get("queueingPolicy", {}), now)
    kind = _kind(body, specs)
    reservation = body.get("reservationName", "") if kind == "reserved" else ""
    if reservation:
        parse_name(reservation, "reservations", "queued_resource.reservation_name")
    return Admission(
        zone=parent.location,
        generation=specs[0].accelerator.generation.name,
        kind=kind,
        chips=sum(spec.accelerator.chips for spec in specs),
        not_before=not_before,
        not_after=not_after,
        reservation=reservation,
    )


def _kind(body: Json, specs: list[SliceSpec]) -> str:
    model = body.get("provisioningModel", "")
    scheduling = specs[0].node.get("schedulingConfig", {})
    if "spot" in body or "bestEffort" in body or model == "SPOT":
        return "spot"
    if scheduling.get("spot") or scheduling.get("preemptible"):
        return "spot"
    if (
        body.get("guaranteed", {}).get("reserved")
        or body.get("reservationName")
        or scheduling.get("reserved")
    ):
        return "reserved"
    return "reserved" if model.startswith("RESERV") else "on-demand"


def _timing(policy: Json, now: float) -> tuple[float, float]:
    interval = policy.get("validInterval", {})
    after = policy.get("validAfterTime") or interval.get("startTime")
    until = policy.get("validUntilTime") or interval.get("endTime")
    not_before = parse_timestamp(after) if after else 0.0
    not_after = parse_timestamp(until) if until else float("inf")
    if "validAfterDuration" in policy:
        not_before = now + parse_duration(policy["validAfterDuration"])
    if "validUntilDuration" in policy:
        not_after = now + parse_duration(policy["validUntilDuration"])
    if not_after <= max(now, not_before):
        raise invalid("queued_resource.queueing_policy", "The request's validity ends before it could begin.")
    return not_before, not_after


def require_location(parent: Parent) -> Parent:
    """The parent where something is created, which must be one location.

    Raises:
        ApiError: INVALID_ARGUMENT.
    """
    if parent.location == "-":
        raise ApiError("INVALID_ARGUMENT", "A location is needed here; '-' only lists.")
    return parent
