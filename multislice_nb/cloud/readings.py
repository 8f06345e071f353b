"""From the client library's messages to our frozen statuses, for v2 and v2alpha1 alike.

The plain protobuf messages are read, not their Python wrappers: a list of hundreds takes milliseconds.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from multislice_nb.cloud.kinds import capacity_name, generation_name
from multislice_nb.cloud.status import Endpoint, Maintenance, NodeStatus, QueuedResourceStatus
from multislice_nb.errors import AcceleratorTypeError
from multislice_nb.tpu import AcceleratorType

__all__ = ["node_status", "queued_resource_status", "short_name"]

Message = Any


def short_name(resource_name: str) -> str:
    """The last part of `projects/…/locations/…/…/NAME`."""
    return resource_name.rsplit("/", 1)[-1]


def queued_resource_status(message: Message) -> QueuedResourceStatus:
    """Read a QueuedResource, from the library's wrapper or the protobuf message."""
    raw = _plain(message)
    parts = raw.name.split("/")
    specs = list(raw.tpu.node_spec)
    node_ids = _node_ids(short_name(raw.name), specs)
    node = specs[0].node if specs else None
    created = _time(raw, "create_time")
    state = _enum(raw.state, "state")
    return QueuedResourceStatus(
        name=short_name(raw.name),
        state=state,
        state_initiator=_enum(raw.state, "state_initiator").removeprefix("STATE_INITIATOR_UNSPECIFIED"),
        since=created if state in {"CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES"} else None,
        accelerator_type=_accelerator_type(node),
        node_count=len(node_ids),
        node_ids=node_ids,
        zone=_part(parts, "locations"),
        project=_part(parts, "projects"),
        capacity=_capacity(raw),
        runtime_version=node.runtime_version if node is not None else "",
        error=_error(raw),
        create_time=created,
        valid_until=_valid_until(raw, created),
        labels=dict(node.labels) if node is not None else {},
    )


def node_status(message: Message) -> NodeStatus:
    """Read a Node. Its slice id is the number its name ends with; a queued resource knows better."""
    raw = _plain(message)
    node_id = short_name(raw.name)
    number = re.search(r"-(\d+)$", node_id)
    return NodeStatus(
        node_id=node_id,
        slice_id=int(number[1]) if number and raw.multislice_node else 0,
        state=_enum(raw, "state"),
        health=_enum(raw, "health"),
        accelerator_type=_accelerator_type(raw),
        endpoints=tuple(_endpoint(endpoint) for endpoint in _first_interfaces(raw)),
        zone=_part(raw.name.split("/"), "locations"),
        runtime_version=raw.runtime_version,
        health_description=raw.health_description,
        labels=dict(raw.labels),
        metadata=dict(raw.metadata),
        queued_resource=short_name(raw.queued_resource) or None,
        create_time=_time(raw, "create_time"),
        maintenance=_maintenance(raw),
    )


def _plain(message: Message) -> Message:
    return getattr(message, "_pb", message)


def _enum(message: Message, field: str) -> str:
    """The enum's name; its number where this version of the library does not know it."""
    number = getattr(message, field)
    known = message.DESCRIPTOR.fields_by_name[field].enum_type.values_by_number
    return str(known[number].name) if number in known else str(number)


def _part(parts: list[str], collection: str) -> str:
    return parts[parts.index(collection) + 1] if collection in parts[:-1] else ""


def _time(message: Message, field: str) -> datetime | None:
    return getattr(message, field).ToDatetime(tzinfo=UTC) if message.HasField(field) else None


def _node_ids(name: str, specs: list[Message]) -> tuple[str, ...]:
    """Answers have one entry per slice; a request's single entry with a count is expanded here."""
    if len(specs) == 1 and not specs[0].node_id:
        alpha = "multi_node_params" in specs[0].DESCRIPTOR.fields_by_name
        params = specs[0].multi_node_params if alpha else specs[0].multislice_params
        prefix = params.node_id_prefix or name
        return tuple(f"{prefix}-{index}" for index in range(params.node_count))
    return tuple(spec.node_id for spec in specs)


def _accelerator_type(node: Message | None) -> str:
    if node is None:
        return ""
    if node.accelerator_type or not node.HasField("accelerator_config"):
        return str(node.accelerator_type)
    config = node.accelerator_config
    api_type = _enum(config, "type_")
    try:
        return AcceleratorType.from_topology(generation_name(api_type), config.topology).name
    except AcceleratorTypeError:
        return f"{api_type} {config.topology}"


def _capacity(raw: Message) -> str:
    tier = raw.WhichOneof("tier")
    reserved = tier == "guaranteed" and getattr(raw.guaranteed, "reserved", False)
    return capacity_name(
        spot=tier == "spot",
        reserved=bool(reserved or raw.reservation_name),
        best_effort=tier == "best_effort",
    )


def _error(raw: Message) -> str | None:
    if raw.state.WhichOneof("state_data") != "failed_data":
        return None
    return str(raw.state.failed_data.error.message) or None


def _valid_until(raw: Message, created: datetime | None) -> datetime | None:
    policy = raw.queueing_policy
    edge = policy.WhichOneof("start_timing_constraints")
    if edge == "valid_until_time":
        return _time(policy, edge)
    if edge == "valid_interval" and policy.valid_interval.HasField("end_time"):
        return _time(policy.valid_interval, "end_time")
    if edge == "valid_until_duration" and created is not None:
        seconds = policy.valid_until_duration.seconds + policy.valid_until_duration.nanos / 1e9
        return created + timedelta(seconds=seconds)
    return None


def _first_interfaces(raw: Message) -> list[Message]:
    """With several network interfaces a worker has as many endpoints in a row; the first one counts."""
    return list(raw.network_endpoints)[:: max(1, len(raw.network_configs))]


def _endpoint(endpoint: Message) -> Endpoint:
    external = endpoint.access_config.external_ip if endpoint.HasField("access_config") else ""
    return Endpoint(endpoint.ip_address, external or None, endpoint.port or 22)


def _maintenance(raw: Message) -> Maintenance | None:
    if "upcoming_maintenance" not in raw.DESCRIPTOR.fields_by_name or not raw.HasField(
        "upcoming_maintenance"
    ):
        return None
    coming = raw.upcoming_maintenance
    start = coming.window_start_time
    return Maintenance(
        kind=_enum(coming, "type_"),
        status=_enum(coming, "maintenance_status"),
        start=datetime.fromisoformat(start) if start else None,
        can_reschedule=coming.can_reschedule,
    )
