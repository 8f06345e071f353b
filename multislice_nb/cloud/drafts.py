"""From the words of a `create` call to a whole request and its entry in the ledger."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from multislice_nb import config
from multislice_nb.cloud.field_types import refuse_unknown
from multislice_nb.cloud.ledger import JOB_LABEL, Entry
from multislice_nb.cloud.request import QueuedResourceRequest
from multislice_nb.cloud.times import parse_duration

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["bounded", "complete", "entry_for"]


def complete(
    name: str | QueuedResourceRequest, fields: Mapping[str, Any], project: str, zone: str
) -> QueuedResourceRequest:
    """The request with what it leaves open taken from the connection and from `%config Multislice`.

    Raises:
        InvalidRequestError: Everything that is wrong with it.
    """
    refuse_unknown(fields, QueuedResourceRequest.__dataclass_fields__)
    defaults = config.Multislice.instance()
    if isinstance(name, QueuedResourceRequest):
        missing: dict[str, Any] = {"project": name.project or project, "zone": name.zone or zone}
        return name.replace(**{**missing, **fields})
    filled: dict[str, Any] = {**fields, "name": name}
    filled["project"], filled["zone"] = filled.get("project") or project, filled.get("zone") or zone
    if not filled.get("accelerator_type") and not filled.get("type"):
        filled["accelerator_type"] = defaults.accelerator_type
    for key in ("network", "subnetwork"):
        filled[key] = filled.get(key) or getattr(defaults, key)
    return QueuedResourceRequest(**filled)


def bounded(request: QueuedResourceRequest, entry: Entry) -> QueuedResourceRequest:
    """The request with its time to live as valid-until, which the service keeps without us.

    A request that nobody waits for any more, as after a killed kernel, is then dropped before it gets capacity.
    """
    timing = (
        request.valid_until_duration,
        request.valid_until_time,
        request.valid_after_duration,
        request.valid_after_time,
    )
    if entry.expires_at is None or any(value is not None for value in timing):
        return request
    return request.replace(
        valid_until_duration=timedelta(seconds=max(1, round(entry.expires_at - entry.asked_at)))
    )


def entry_for(
    request: QueuedResourceRequest,
    request_id: str,
    realm: str,
    ttl: str | float | timedelta | None,
    idle_limit: str | float | timedelta | None,
) -> Entry:
    """The ledger's entry for a request that is about to be sent.

    Raises:
        InvalidRequestError: The time to live or the idle limit cannot be read.
    """
    defaults = config.Multislice.instance()
    lifetime = ttl if ttl is not None else defaults.ttl
    now = time.time()
    return Entry(
        request_id=request_id,
        realm=realm,
        project=str(request.project),
        zone=str(request.zone),
        name=request.name,
        accelerator_type=request.slice_type.name,
        node_count=request.node_count,
        chips=request.chips,
        capacity=request.capacity,
        asked_at=now,
        expires_at=None if lifetime is None else now + parse_duration(lifetime).total_seconds(),
        idle_limit=None if idle_limit is None else parse_duration(idle_limit).total_seconds(),
        chip_hour_price=defaults.chip_hour_price,
        job=(request.labels or {}).get(JOB_LABEL, ""),
    )
