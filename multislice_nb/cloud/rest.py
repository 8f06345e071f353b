"""A request as the JSON body of the create call, and back."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multislice_nb.cloud.field_checks import STARTUP_SCRIPT
from multislice_nb.cloud.request import DataDisk, QueuedResourceRequest
from multislice_nb.cloud.wire import parent, to_json
from multislice_nb.errors import AcceleratorTypeError, InvalidRequestError
from multislice_nb.tpu import AcceleratorType

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["from_rest", "to_curl"]

Json = dict[str, Any]
Faults = list[tuple[str, str]]

_FREE_KEYS = {"metadata", "labels"}
# What only answers have: a body copied from a GET may hold them, and they are not part of a request.
_ANSWER = {"name", "createTime", "state", "@type"}
_NODE_ANSWER = {
    "name", "state", "health", "healthDescription", "createTime", "networkEndpoints", "id", "apiVersion",
    "symptoms", "queuedResource", "multisliceNode", "upcomingMaintenance", "schedulingConfig",
    "networkConfigs",
}  # fmt: skip
_ALPHA_MARKS = ("multiNodeParams", "bestEffort", "autocheckpointEnabled")
_MOST_COMMAS = 100
_KINDS = {dict: "an object", list: "a list", str: "a text", bool: "true or false"}


def from_rest(body: Mapping[str, Any] | str | Path, name: str | None = None) -> QueuedResourceRequest:
    """Read the body of a create call, of v2 or v2alpha1, with names in either of JSON's spellings.

    Args:
        body: The body as a dictionary, as text or as a file. Commas that are missing at the end of a line,
            as on some pages, are put in. An answer of the API to a GET works too.
        name: Id of the queued resource, which is in the call's address and not in its body. When None it is
            the answer's name or the prefix of its nodes.

    Raises:
        InvalidRequestError: It is no such body, or has fields that would be lost.
    """
    camel = _camel(_load(body))
    faults: Faults = []
    fields: dict[str, Any] = {"api_version": _version(camel)}
    specs = _pop(_pop(camel, "tpu", {}), "nodeSpec", [])
    if not _all(dict, specs, "nodeSpec"):
        raise InvalidRequestError(
            "The body has no tpu.nodeSpec.", fix="Paste the whole body of a create call."
        )
    answered = str(camel.get("name", "")).rsplit("/", 1)[-1]
    _read_spec(specs, fields, faults)
    _read_capacity(camel, fields)
    _read_policy(_pop(camel, "queueingPolicy", {}), fields, faults)
    _leftover(camel, "", _ANSWER, faults)
    fields["name"] = name or answered or fields.get("node_prefix") or fields.get("node_id") or ""
    if faults:
        raise InvalidRequestError.of_faults("The body", faults)
    return QueuedResourceRequest(**fields)


def to_curl(request: QueuedResourceRequest) -> str:
    """The curl command that sends the body, with gcloud's access token."""
    url = f"https://tpu.googleapis.com/{request.api_version}/{parent(request)}/queuedResources"
    body = json.dumps(to_json(request), indent=2, ensure_ascii=False)
    return (
        'curl -X POST -H "Authorization: Bearer $(gcloud auth print-access-token)" \\\n'
        '    -H "Content-Type: application/json" \\\n'
        f"    {shlex.quote(f'{url}?queuedResourceId={request.name}')} \\\n"
        f"    -d {shlex.quote(body)}"
    )


def _load(body: Mapping[str, Any] | str | Path) -> Json:
    if isinstance(body, Path):
        try:
            body = body.expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidRequestError(f"{body} cannot be read: {error}.", fix="Name a JSON file.") from error
    loaded = _parse(body) if isinstance(body, str) else _as_json(body)
    if not isinstance(loaded, dict):
        raise InvalidRequestError(
            "The body is no JSON object.", fix="Paste the whole body, { and } included."
        )
    return loaded


def _as_json(body: object) -> Any:
    try:
        return json.loads(json.dumps(body, default=dict))
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(
            f"The body cannot be written as JSON: {error}.", fix="Give what a create call has."
        ) from error


def _parse(text: str) -> Any:
    """JSON, with commas put in where the parser misses one at the start of a line."""
    for _ in range(_MOST_COMMAS):
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            before = text[: error.pos]
            missing = error.msg == "Expecting ',' delimiter" and before[len(before.rstrip()) :].count("\n")
            if not missing:
                raise InvalidRequestError(
                    f"The body is no JSON: {error.msg} in line {error.lineno}, column {error.colno}.",
                    fix="Correct that line; placeholders have to be filled in.",
                ) from error
            text = f"{before.rstrip()},{before[len(before.rstrip()) :]}{text[error.pos :]}"
    raise InvalidRequestError(
        "The body is no JSON: too many commas are missing.",
        fix="Copy it again, with the commas that end its lines.",
    )


def _camel(value: Any, key: str = "") -> Any:
    """With lowerCamelCase keys throughout, but for metadata and labels, whose keys are the user's own."""
    if isinstance(value, list):
        return [_camel(item) for item in value]
    if not isinstance(value, dict) or key in _FREE_KEYS:
        return value
    names = {old: re.sub(r"_(\w)", lambda m: m[1].upper(), old) for old in value}
    return {names[old]: _camel(item, names[old]) for old, item in value.items()}


def _version(body: Json) -> str:
    text = json.dumps(body)
    alpha = any(f'"{mark}"' in text for mark in _ALPHA_MARKS) or "reserved" in _pop(
        dict(body), "guaranteed", {}
    )
    return "v2alpha1" if alpha else "v2"


def _pop(holder: Json, key: str, default: Any) -> Any:
    """A field's value, which is of the default's type where that has one."""
    value = holder.pop(key, default)
    if value is None or default is None:
        return default if value is None else value
    if not isinstance(value, type(default)):
        raise _mistyped(key, value, _KINDS[type(default)])
    return value


def _mistyped(key: str, value: Any, wanted: str) -> InvalidRequestError:
    return InvalidRequestError(f"Field {key} of the body cannot be {value!r}.", fix=f"Give {wanted}.")


def _all(kind: type, values: list[Any], key: str) -> list[Any]:
    for value in values:
        if not isinstance(value, kind):
            raise _mistyped(key, value, f"{_KINDS[kind]} for each")
    return values


def _read_spec(specs: list[Json], fields: dict[str, Any], faults: Faults) -> None:
    spec = specs[0]
    place = re.fullmatch(r"projects/([^/]+)/locations/([^/]+)", _pop(spec, "parent", ""))
    if place:
        fields["project"], fields["zone"] = place[1], place[2]
    params = _pop(spec, "multisliceParams", {}) or _pop(spec, "multiNodeParams", {})
    spec.pop("multiNodeParams", None)
    node_id = _pop(spec, "nodeId", None)
    if len(specs) > 1:
        params = {"nodeCount": len(specs), "nodeIdPrefix": str(node_id).rsplit("-", 1)[0]}
        node_id = None
    fields["node_id"] = node_id
    count = _pop(params, "nodeCount", None)
    if count is not None and not re.fullmatch(r"\d+", str(count)):
        raise _mistyped("nodeCount", count, "a number")
    fields["node_count"] = 1 if count is None else int(count)
    fields["node_prefix"] = _pop(params, "nodeIdPrefix", None)
    workload = _pop(params, "workloadType", None)
    fields["workload_type"] = None if workload == "WORKLOAD_TYPE_UNSPECIFIED" else workload
    _leftover(params, "multisliceParams.", set(), faults)
    _read_node(_pop(spec, "node", {}), fields, faults)
    _leftover(spec, "tpu.nodeSpec.", set(), faults)


def _read_node(node: Json, fields: dict[str, Any], faults: Faults) -> None:
    shape = _pop(node, "acceleratorConfig", {})
    name = _pop(node, "acceleratorType", None)
    # An answer has both; the name alone means the usual shape.
    fields["accelerator_type"] = name if _is_usual(name, shape.get("topology")) else None
    if not fields["accelerator_type"]:
        fields["type"], fields["topology"] = shape.pop("type", None), shape.pop("topology", None)
    fields["runtime_version"] = _pop(node, "runtimeVersion", None)
    network = _pop(node, "networkConfig", {})
    fields["network"], fields["subnetwork"] = network.pop("network", None), network.pop("subnetwork", None)
    fields["internal_ips"] = bool(network) and not network.pop("enableExternalIps", False)
    _leftover(network, "networkConfig.", set(), faults)
    account = _pop(node, "serviceAccount", {})
    fields["service_account"], fields["scopes"] = (
        account.pop("email", None),
        tuple(_pop(account, "scope", [])),
    )
    metadata = dict(_pop(node, "metadata", {}))
    fields["startup_script"] = metadata.pop(STARTUP_SCRIPT, None)
    fields["metadata"], fields["labels"] = metadata, _pop(node, "labels", {})
    fields["tags"], fields["description"] = tuple(_pop(node, "tags", [])), _pop(node, "description", None)
    fields["cidr_range"] = _pop(node, "cidrBlock", None)
    fields["data_disks"] = tuple(
        DataDisk(_pop(disk, "sourceDisk", ""), _pop(disk, "mode", "READ_WRITE").lower().replace("_", "-"))
        for disk in _all(dict, _pop(node, "dataDisks", []), "dataDisks")
    )
    fields["shielded_secure_boot"] = _pop(node, "shieldedInstanceConfig", {}).get("enableSecureBoot", False)
    fields["autocheckpoint_enabled"] = _pop(node, "autocheckpointEnabled", False)
    _leftover(node, "node.", _NODE_ANSWER, faults)


def _is_usual(name: Any, topology: Any) -> bool:
    """Whether a type of that name has that topology, as far as both are known."""
    try:
        return not (name and topology) or AcceleratorType.parse(str(name)).topology == topology
    except AcceleratorTypeError:
        return True


def _read_capacity(body: Json, fields: dict[str, Any]) -> None:
    fields["spot"] = body.pop("spot", None) is not None
    fields["best_effort"] = body.pop("bestEffort", None) is not None
    body.pop("provisioningModel", None)  # gcloud's alpha command always sends it; spot says the same
    if body.get("guaranteed") is not None:
        guaranteed = _pop(body, "guaranteed", {})
        fields["reserved"] = bool(guaranteed.get("reserved"))
        fields["min_duration"] = guaranteed.get("minDuration")
        fields["guaranteed"] = not fields["reserved"] and not fields["min_duration"]
    name = _pop(body, "reservationName", "")
    place = f"projects/{fields.get('project')}/locations/{fields.get('zone')}"
    host = re.fullmatch(r"((?:projects|folders|organizations)/[^/]+)/locations/[^/]+/reservations/-", name)
    if name == f"{place}/reservations/-":
        fields["reserved"] = True
    elif host:
        fields["reservation_host"] = host[1]
    elif name:
        fields["reservation"] = name


def _read_policy(policy: Json, fields: dict[str, Any], faults: Faults) -> None:
    interval = _pop(policy, "validInterval", {})
    pairs = {
        "valid_after_duration": policy.pop("validAfterDuration", None),
        "valid_after_time": policy.pop("validAfterTime", None) or interval.pop("startTime", None),
        "valid_until_duration": policy.pop("validUntilDuration", None),
        "valid_until_time": policy.pop("validUntilTime", None) or interval.pop("endTime", None),
    }
    fields.update({key: value for key, value in pairs.items() if value is not None})
    _leftover({**policy, **interval}, "queueingPolicy.", set(), faults)


def _leftover(holder: Json, where: str, known: set[str], faults: Faults) -> None:
    """Fields that were not read would be lost silently: they are faults."""
    for key in _kept(holder, known):
        faults.append((f"Field {where}{key} is not supported.", "Leave it out, or send the body with curl."))


def _kept(holder: Json, known: set[str]) -> Iterator[str]:
    return (key for key, value in holder.items() if key not in known and value not in (None, "", [], {}))
