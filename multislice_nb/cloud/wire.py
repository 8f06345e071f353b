"""A request as the Cloud TPU API wants it: JSON, and the client library's message made from it.

v2 and v2alpha1 differ in names and field numbers, so one dictionary is written for each version by the rules
that gcloud follows, and the message is made from the dictionary.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from multislice_nb.cloud.field_checks import STARTUP_SCRIPT
from multislice_nb.cloud.kinds import generation_name
from multislice_nb.cloud.times import format_json_duration, format_time
from multislice_nb.tpu import generation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from multislice_nb.cloud.request import QueuedResourceRequest

__all__ = ["parent", "to_json", "to_message"]

_UNKNOWN_PROJECT = "PROJECT"
_UNKNOWN_ZONE = "ZONE"

Json = dict[str, Any]


def parent(request: QueuedResourceRequest) -> str:
    """`projects/…/locations/…`, which the API calls the parent."""
    return f"projects/{request.project or _UNKNOWN_PROJECT}/locations/{request.zone or _UNKNOWN_ZONE}"


def to_json(request: QueuedResourceRequest, extra_labels: Mapping[str, str] | None = None) -> Json:
    """The body of the create call, in the request's own API version.

    Args:
        request: What is asked for.
        extra_labels: Labels to add, such as this tool's own.
    """
    spec: Json = {"parent": parent(request), "node": _node(request, extra_labels or {})}
    slices = "multiNodeParams" if request.api_version == "v2alpha1" else "multisliceParams"
    if request.node_count == 1:
        spec["nodeId"] = request.node_ids[0]
    else:
        spec[slices] = {"nodeCount": request.node_count}
        if request.node_prefix:
            spec[slices]["nodeIdPrefix"] = request.node_prefix
        if request.workload_type:
            spec[slices]["workloadType"] = request.workload_type
    body: Json = {"tpu": {"nodeSpec": [spec]}, **_capacity(request)}
    policy = _queueing_policy(request)
    if policy:
        body["queueingPolicy"] = policy
    return body


def to_message(request: QueuedResourceRequest, extra_labels: Mapping[str, str] | None = None) -> Any:
    """The client library's QueuedResource of the request's API version."""
    if request.api_version == "v2alpha1":
        from google.cloud import tpu_v2alpha1 as library
    else:
        from google.cloud import tpu_v2 as library  # type: ignore[no-redef]
    return library.QueuedResource.from_json(json.dumps(to_json(request, extra_labels)))


def _node(request: QueuedResourceRequest, extra_labels: Mapping[str, str]) -> Json:
    network: Json = {
        "network": request.network or "default",
        "enableExternalIps": not request.internal_ips,
    }
    if request.subnetwork:
        network["subnetwork"] = request.subnetwork
    node: Json = {
        **_shape(request),
        "runtimeVersion": request.runtime_version,
        "networkConfig": network,
        "serviceAccount": _service_account(request),
        "metadata": dict(request.metadata),
    }
    if request.startup_script is not None:
        node["metadata"][STARTUP_SCRIPT] = request.startup_script
    optional = {
        "description": request.description,
        "cidrBlock": request.cidr_range,
        "tags": list(request.tags),
        "labels": {**request.labels, **extra_labels},
        "dataDisks": [
            {"sourceDisk": disk.source, "mode": disk.mode.replace("-", "_").upper()}
            for disk in request.data_disks
        ],
        "shieldedInstanceConfig": {"enableSecureBoot": True} if request.shielded_secure_boot else None,
        "autocheckpointEnabled": request.autocheckpoint_enabled or None,
    }
    return {**node, **{key: value for key, value in optional.items() if value}}


def _shape(request: QueuedResourceRequest) -> Json:
    if request.accelerator_type:
        return {"acceleratorType": request.accelerator_type}
    api_type = generation(generation_name(str(request.type))).api_type
    return {"acceleratorConfig": {"type": api_type, "topology": request.topology}}


def _service_account(request: QueuedResourceRequest) -> Json:
    account: Json = {}
    if request.service_account:
        account["email"] = request.service_account
    if request.scopes:
        account["scope"] = list(request.scopes)
    return account


def _capacity(request: QueuedResourceRequest) -> Json:
    body: Json = {}
    if request.spot:
        body["spot"] = {}
    if request.best_effort:
        body["bestEffort"] = {}
    if request.guaranteed or request.min_duration is not None:
        body["guaranteed"] = {}
    if request.min_duration is not None:
        body["guaranteed"]["minDuration"] = format_json_duration(request.min_duration)  # type: ignore[arg-type]
    if request.reserved and request.api_version == "v2alpha1":
        body.setdefault("guaranteed", {})["reserved"] = True
    reservation = _reservation(request)
    if reservation:
        body["reservationName"] = reservation
    return body


def _reservation(request: QueuedResourceRequest) -> str | None:
    zone = request.zone or _UNKNOWN_ZONE
    if request.reservation_host:
        return f"{request.reservation_host}/locations/{zone}/reservations/-"
    if request.reservation:
        full = "/" in request.reservation
        return request.reservation if full else f"{parent(request)}/reservations/{request.reservation}"
    if request.reserved and request.api_version == "v2":
        return f"{parent(request)}/reservations/-"
    return None


def _queueing_policy(request: QueuedResourceRequest) -> Json:
    """As gcloud does: both edges become an interval by this machine's clock, one alone is sent as it is."""
    now = datetime.now(UTC)
    edges = {
        "validAfter": (request.valid_after_time, request.valid_after_duration),
        "validUntil": (request.valid_until_time, request.valid_until_duration),
    }
    given: dict[str, Any] = {
        name: time if time is not None else duration
        for name, (time, duration) in edges.items()
        if time is not None or duration is not None
    }
    if len(given) == 2:
        start, end = (value if isinstance(value, datetime) else now + value for value in given.values())
        return {"validInterval": {"startTime": format_time(start), "endTime": format_time(end)}}
    return {
        **{f"{name}Time": format_time(v) for name, v in given.items() if isinstance(v, datetime)},
        **{
            f"{name}Duration": format_json_duration(v)
            for name, v in given.items()
            if not isinstance(v, datetime)
        },
    }
