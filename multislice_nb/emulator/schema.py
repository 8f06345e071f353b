"""The two API versions' messages, and the way between them and the one canonical JSON.

The versions number their fields differently, so bytes of one are never used for the other: everything goes
through the canonical document.
"""

from __future__ import annotations

import functools
from typing import Any

from google.cloud import tpu_v2, tpu_v2alpha1
from google.cloud.location import locations_pb2  # type: ignore[import-untyped]  # it has no types
from google.longrunning import operations_pb2
from google.protobuf import empty_pb2
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError

from multislice_nb.emulator.rpc import ApiError, Json

_MODULES = {"v2": tpu_v2, "v2alpha1": tpu_v2alpha1}
_SHARED = {
    "Operation": operations_pb2.Operation,
    "Empty": empty_pb2.Empty,
    "Location": locations_pb2.Location,
}
# Fields that gcloud's alpha track sends and the published messages do not know (gcloud's own messages).
EXTRAS: dict[str, frozenset[str]] = {
    "QueuedResource": frozenset({"provisioningModel", "runDuration", "trafficConfig"}),
    "SchedulingConfig": frozenset({"provisioningModel", "reservationName", "terminationTimestamp"}),
    "AttachedDisk": frozenset({"workerIds"}),
    "Node": frozenset({"autocheckpointEnabled"}),
}
_WELL_KNOWN = "google.protobuf."


@functools.cache
def message_class(version: str, name: str) -> Any:
    """The protobuf class of a message of a version, or of the services that both share."""
    if name in _SHARED:
        return _SHARED[name]
    for module in (operations_pb2, locations_pb2):
        if name in module.DESCRIPTOR.message_types_by_name:
            return getattr(module, name)
    wrapper = getattr(_MODULES[version], name)
    return type(wrapper.pb(wrapper()))


# What only v2alpha1 has, by comparing the two versions' published services.
_ALPHA_ONLY = frozenset(
    {
        "ListReservations",
        "PerformMaintenance",
        "PerformMaintenanceQueuedResource",
        "SimulateMaintenanceEvent",
    }
)
_METHODS = frozenset(
    {
        *_ALPHA_ONLY,
        *("ListNodes", "GetNode", "CreateNode", "DeleteNode", "StopNode", "StartNode", "UpdateNode"),
        *("ListQueuedResources", "GetQueuedResource", "CreateQueuedResource", "DeleteQueuedResource"),
        *("ResetQueuedResource", "GenerateServiceIdentity", "GetGuestAttributes"),
        *("ListAcceleratorTypes", "GetAcceleratorType", "ListRuntimeVersions", "GetRuntimeVersion"),
        *("ListLocations", "GetLocation"),
        *("ListOperations", "GetOperation", "CancelOperation", "DeleteOperation", "WaitOperation"),
    }
)


@functools.cache
def methods(version: str) -> frozenset[str]:
    """The methods of a version of the service, with those of operations and locations."""
    return _METHODS if version == "v2alpha1" else _METHODS - _ALPHA_ONLY


def to_dict(message: Any) -> Json:
    """The canonical form of a message."""
    document: Json = MessageToDict(message)
    return document


def read(version: str, name: str, document: Json) -> Json:
    """Check a JSON request against a message, and return it in canonical form.

    Raises:
        ApiError: INVALID_ARGUMENT in the service's words: unknown field, wrong type, unknown enum value.
    """
    cls = message_class(version, name)
    extras: list[tuple[tuple[str, ...], Any]] = []
    plain = _without_extras(document, cls.DESCRIPTOR, (), extras)
    try:
        canonical = to_dict(ParseDict(plain, cls(), max_recursion_depth=50))
    except (ParseError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ApiError("INVALID_ARGUMENT", f"Invalid JSON payload received. {_first_line(error)}") from error
    for path, value in extras:
        _put(canonical, path, value)
    return canonical


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0][:500] if lines else type(error).__name__


def _without_extras(
    document: Any, descriptor: Any, path: tuple[str, ...], extras: list[tuple[tuple[str, ...], Any]]
) -> Any:
    if not isinstance(document, dict):
        return document
    result = {}
    fields = {field.json_name: field for field in descriptor.fields}
    for key, value in document.items():
        field = fields.get(key)
        if field is None and key in EXTRAS.get(descriptor.name, ()):
            extras.append(((*path, key), value))
        elif field is None or field.message_type is None or field.message_type.GetOptions().map_entry:
            result[key] = value
        elif isinstance(value, list):
            result[key] = [
                _without_extras(item, field.message_type, (*path, key, str(index)), extras)
                for index, item in enumerate(value)
            ]
        else:
            result[key] = _without_extras(value, field.message_type, (*path, key), extras)
    return result


def _put(document: Any, path: tuple[str, ...], value: Any) -> None:
    *way, last = path
    here = document
    for step in way:
        here = here[int(step)] if isinstance(here, list) else here.setdefault(step, {})
    if isinstance(here, dict):
        here.setdefault(last, value)


def fit(version: str, name: str, document: Json, *, extras: bool = False) -> Json:
    """A canonical document with only what a version's message knows.

    Args:
        version: "v2" or "v2alpha1".
        name: The message.
        document: The canonical document.
        extras: Keep what gcloud's alpha track knows beyond the message.
    """
    fitted = _fit(document, message_class(version, name).DESCRIPTOR, extras)
    return fitted if isinstance(fitted, dict) else {}


def _fit(document: Any, descriptor: Any, extras: bool) -> Any:
    if not isinstance(document, dict) or descriptor.full_name.startswith(_WELL_KNOWN):
        return document
    fields = _fields(descriptor.full_name, descriptor)
    kept = EXTRAS.get(descriptor.name, frozenset()) if extras else frozenset()
    result = {}
    for key, value in document.items():
        field = fields.get(key)
        if field is None:
            if key in kept:
                result[key] = value
        elif field is _PLAIN:
            result[key] = value
        elif isinstance(value, list):
            result[key] = [_fit(item, field, extras) for item in value]
        else:
            result[key] = _fit(value, field, extras)
    return result


_PLAIN = object()
_FIELDS: dict[str, dict[str, Any]] = {}


def _fields(full_name: str, descriptor: Any) -> dict[str, Any]:
    """Per field the message it holds, or a mark for a plain one."""
    known = _FIELDS.get(full_name)
    if known is None:
        known = _FIELDS[full_name] = {
            field.json_name: field.message_type
            if field.message_type is not None and not field.message_type.GetOptions().map_entry
            else _PLAIN
            for field in descriptor.fields
        }
    return known


def to_message(version: str, name: str, document: Json) -> Any:
    """The protobuf message of a canonical document."""
    return ParseDict(document, message_class(version, name)(), ignore_unknown_fields=True)


def operation_document(operation: Any) -> Json:
    """An operation as JSON, with its metadata and result typed for the version that asked."""
    version = operation.version
    document = {key: value for key, value in operation.data.items() if key != "metadata"}
    document["metadata"] = {
        "@type": f"type.googleapis.com/google.cloud.tpu.{version}.OperationMetadata",
        **operation.data["metadata"],
    }
    if not operation.done:
        document.pop("done", None)
    if operation.done and operation.result is not None:
        kind, result = operation.result
        if kind == "Empty":
            document["response"] = {"@type": "type.googleapis.com/google.protobuf.Empty"}
        else:
            typed = {"@type": f"type.googleapis.com/google.cloud.tpu.{version}.{kind}"}
            document["response"] = {**typed, **fit(version, kind, result)}
    return document
