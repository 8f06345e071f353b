"""What can be wrong with a request's zone, labels, metadata, times and attachments.

The rules are Compute Engine's, as its reference pages state them.
"""

from __future__ import annotations

import ipaddress
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from multislice_nb.cloud.kinds import slice_type_of
from multislice_nb.tpu import GENERATIONS, AcceleratorType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from multislice_nb.errors import InvalidRequestError

__all__ = ["FIELD_CHECKS", "STARTUP_SCRIPT", "Fault", "Values"]

STARTUP_SCRIPT = "startup-script"
"""The metadata key whose value runs at every boot of a TPU VM."""

# Compute Engine: network tags, label keys and values, metadata keys and sizes.
_TAG = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
_METADATA_KEY = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_MAX_LABELS = 64
_METADATA_VALUE_BYTES = 256 * 1024
_METADATA_BYTES = 512 * 1024
_REGION = re.compile(r"[a-z]+(-[a-z]+)+[0-9]+")
_DISK = re.compile(r"projects/[^/]+/(zones|regions)/[^/]+/disks/[^/]+")

Values = dict[str, Any]


class Fault(NamedTuple):
    """One thing that is wrong and how to mend it; `error` when it is the error to raise if it is alone."""

    what: str
    fix: str
    error: InvalidRequestError | None = None


def _check_zone(values: Values) -> Iterator[Fault]:
    """A region has several zones; which zones there are is the API's to know."""
    zone = values["zone"] or ""
    if _REGION.fullmatch(zone):
        with_tpus = {name for kind in GENERATIONS for name in kind.zones if name.startswith(f"{zone}-")}
        yield Fault(
            f"{zone} is a region; queued resources are in a zone.",
            f"Name one: {', '.join(sorted(with_tpus)) or f'{zone}-a and its like'}.",
        )


def _check_labels(values: Values) -> Iterator[Fault]:
    for tag in values["tags"]:
        if not _TAG.fullmatch(tag):
            yield Fault(f"Tag {tag!r} is not allowed.", "Use lower-case letters, digits and -, at most 63.")
    for key, value in values["labels"].items():
        if not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
            yield Fault(
                f"Label {key}={value} is not allowed.",
                "Use lower-case letters, digits, - and _, at most 63; keys start with a letter.",
            )
    if len(values["labels"]) > _MAX_LABELS - 3:
        yield Fault(
            f"{len(values['labels'])} labels are too many.",
            f"Give at most {_MAX_LABELS - 3}: Google allows {_MAX_LABELS}, and three are this tool's own.",
        )


def _check_metadata(values: Values) -> Iterator[Fault]:
    metadata = {**values["metadata"], STARTUP_SCRIPT: values["startup_script"] or ""}
    sizes = {key: len(value.encode()) for key, value in metadata.items()}
    for key, size in sizes.items():
        if not _METADATA_KEY.fullmatch(key):
            yield Fault(f"Metadata key {key!r} is not allowed.", "Use letters, digits, - and _, at most 128.")
        if size > _METADATA_VALUE_BYTES:
            fix = "Keep it under 256 KiB: put the bulk in a bucket and fetch it from the startup script."
            yield Fault(f"Metadata {key} has {size} bytes.", fix)
    if sum(sizes.values()) > _METADATA_BYTES:
        yield Fault(f"The metadata has {sum(sizes.values())} bytes.", "Keep it under 512 KiB in all.")


def _check_timing(values: Values) -> Iterator[Fault]:
    for edge in ("after", "until"):
        if values[f"valid_{edge}_duration"] is not None and values[f"valid_{edge}_time"] is not None:
            yield Fault(
                f"Both --valid-{edge}-duration and --valid-{edge}-time are given.", "Give one of the two."
            )
    for name in ("min_duration", "valid_after_duration", "valid_until_duration"):
        if values[name] is not None and values[name] <= timedelta(0):
            yield Fault(f"--{name.replace('_', '-')} is zero.", "Give a duration longer than that.")
    now = datetime.now(UTC)
    start, end = _moment(values, "after", now), _moment(values, "until", now)
    if end is not None and end <= max(now, start or now):
        late = "before it may start" if start and end > now else "in the past"
        yield Fault(f"The request would stop being valid {late}.", "Give a later --valid-until time.")


def _moment(values: Values, edge: str, now: datetime) -> datetime | None:
    time: datetime | None = values[f"valid_{edge}_time"]
    duration: timedelta | None = values[f"valid_{edge}_duration"]
    if time is not None:
        return time
    return None if duration is None or duration <= timedelta(0) else now + duration


def _check_attachments(values: Values) -> Iterator[Fault]:
    account = values["service_account"]
    if account and "@" not in account:
        yield Fault(
            f"Service account {account!r} is no email address.", "Give NAME@PROJECT.iam.gserviceaccount.com."
        )
    if values["cidr_range"]:
        yield from _check_range(values["cidr_range"])
    kind = slice_type_of(values)
    workers = kind.workers * values["node_count"] if isinstance(kind, AcceleratorType) else 1
    for disk in values["data_disks"]:
        if not _DISK.fullmatch(disk.source):
            yield Fault(f"Data disk {disk.source!r} is no full name.", "Give projects/P/zones/Z/disks/NAME.")
        if disk.mode not in {"read-write", "read-only"}:
            yield Fault(f"Data disk mode {disk.mode!r} is unknown.", "Use read-write or read-only.")
        elif disk.mode == "read-write" and workers > 1:
            yield Fault(
                f"Data disk {disk.source} cannot be written by {workers} workers.",
                "Attach it with mode=read-only; only one VM can write to a disk.",
            )


def _check_range(cidr: str) -> Iterator[Fault]:
    try:
        prefix = ipaddress.ip_network(cidr).prefixlen
    except ValueError:
        prefix = 0
    if prefix != 29:
        yield Fault(f"Range {cidr!r} is no /29 range.", "Give one as 192.168.0.0/29.")


FIELD_CHECKS: tuple[Callable[[Values], Iterator[Fault]], ...] = (
    _check_zone,
    _check_labels,
    _check_metadata,
    _check_timing,
    _check_attachments,
)
