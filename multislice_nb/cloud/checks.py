"""What can be wrong with a request, found before anything is sent.

Each check looks at one thing and reports every fault it finds, so that a request is mended in one go. Rules
are the Cloud TPU API's and Compute Engine's own, as their reference pages state them.
"""

from __future__ import annotations

import ipaddress
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from multislice_nb.cloud.times import parse_duration, parse_time
from multislice_nb.errors import InvalidRequestError
from multislice_nb.tpu import GENERATIONS, AcceleratorType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "MAX_SLICES",
    "STARTUP_SCRIPT",
    "Fault",
    "capacity_name",
    "faults_of",
    "generation_name",
    "normalise",
]

MAX_SLICES = 256
"""The Multislice overview: limited to 256 slices at most."""

STARTUP_SCRIPT = "startup-script"
"""The metadata key whose value runs at every boot of a TPU VM."""

# CreateQueuedResourceRequest.queued_resource_id and MultisliceParams.node_id_prefix, Cloud TPU API v2.
_ID = re.compile(r"[A-Za-z0-9_.~+%-]+")
# Compute Engine: network tags, label keys and values, metadata keys and sizes.
_TAG = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
_METADATA_KEY = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_MAX_LABELS = 64
_METADATA_VALUE_BYTES = 256 * 1024
_METADATA_BYTES = 512 * 1024
_DISK = re.compile(r"projects/[^/]+/(zones|regions)/[^/]+/disks/[^/]+")
_RESERVATION = re.compile(
    r"[a-zA-Z0-9-]+|(projects|folders|organizations)/[^/]+(/(locations|zones)/[^/]+)?/reservations/[^/]+"
)
_WORKLOADS = ("THROUGHPUT_OPTIMIZED", "AVAILABILITY_OPTIMIZED")
_VERSIONS = ("v2", "v2alpha1")
_ALPHA_FIELDS = ("best_effort", "autocheckpoint_enabled", "workload_type")

Values = dict[str, Any]


class Fault(NamedTuple):
    """One thing that is wrong and how to mend it; `error` when it is the error to raise if it is alone."""

    what: str
    fix: str
    error: InvalidRequestError | None = None


def capacity_name(*, spot: bool, reserved: bool, best_effort: bool = False) -> str:
    """The overview's word for where the capacity comes from."""
    if spot:
        return "spot"
    if reserved:
        return "reserved"
    return "best-effort" if best_effort else "on-demand"


def generation_name(api_type: str) -> str:
    """The generation's own name for `V5LITE_POD`, `v5litepod` or `v5e`."""
    wanted = api_type.lower().replace("_", "").replace("-", "")
    for kind in GENERATIONS:
        if wanted in {kind.name, kind.prefix, kind.api_type.lower().replace("_", "")}:
            return kind.name
    return api_type


def _type_name(api_type: str) -> str:
    """Gcloud's spelling of a type, as `v5litepod` for V5LITE_POD."""
    name = generation_name(api_type)
    return next((kind.prefix for kind in GENERATIONS if kind.name == name), api_type)


def normalise(values: Values) -> list[Fault]:
    """Turn what people write into what is meant, in place; faults are what cannot be read."""
    faults: list[Fault] = []
    _read_times(values, faults)
    _read_startup_script(values, faults)
    values["labels"] = {str(key): str(value) for key, value in dict(values["labels"]).items()}
    values["metadata"] = {str(key): str(value) for key, value in dict(values["metadata"]).items()}
    if values["accelerator_type"]:
        values["accelerator_type"] = str(values["accelerator_type"]).strip().lower()
    if values["type"]:
        values["type"] = _type_name(str(values["type"]))
    if any(values[name] for name in _ALPHA_FIELDS):
        values["api_version"] = "v2alpha1"
    return faults


def faults_of(values: Values) -> list[Fault]:
    """Everything that is wrong with a request whose values were normalised."""
    found = [fault for check in _CHECKS for fault in check(values)]
    if values["runtime_version"] is None:
        kind = _slice_type(values)
        values["runtime_version"] = kind.runtime_version if isinstance(kind, AcceleratorType) else None
    return found


def _read_times(values: Values, faults: list[Fault]) -> None:
    readers: dict[str, Callable[[Any], Any]] = {
        "min_duration": parse_duration,
        "valid_after_duration": parse_duration,
        "valid_after_time": parse_time,
        "valid_until_duration": parse_duration,
        "valid_until_time": parse_time,
    }
    for name, reader in readers.items():
        if values[name] is None:
            continue
        try:
            values[name] = reader(values[name])
        except InvalidRequestError as error:
            faults.append(Fault(f"--{name.replace('_', '-')}: {error.what}", error.fix))
            values[name] = None


def _read_startup_script(values: Values, faults: list[Fault]) -> None:
    script = values["startup_script"]
    if isinstance(script, Path):
        try:
            script = script.expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            faults.append(Fault(f"The startup script {script} cannot be read: {error}.", "Name a text file."))
            script = None
    in_metadata = dict(values["metadata"]).get(STARTUP_SCRIPT)
    if script is not None and in_metadata is not None and script != in_metadata:
        what = "A startup script is given twice: by itself and in the metadata."
        faults.append(Fault(what, f"Leave {STARTUP_SCRIPT} out of the metadata."))
    values["startup_script"] = in_metadata if script is None else script
    values["metadata"] = {k: v for k, v in dict(values["metadata"]).items() if k != STARTUP_SCRIPT}


def _check_names(values: Values) -> Iterator[Fault]:
    for name in ("name", "node_id", "node_prefix"):
        value = values[name]
        if (value is not None or name == "name") and not _ID.fullmatch(str(value or "")):
            label = "The queued resource's name" if name == "name" else f"--{name.replace('_', '-')}"
            yield Fault(
                f"{label} {value!r} is not allowed.", "Use letters, digits and - _ . ~ + %, no spaces."
            )
    if values["api_version"] not in _VERSIONS:
        yield Fault(f"API version {values['api_version']!r} is unknown.", "Use v2 or v2alpha1.")


def _check_nodes(values: Values) -> Iterator[Fault]:
    count = values["node_count"]
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MAX_SLICES:
        yield Fault(f"--node-count {count!r} is not allowed.", f"Ask for 1 to {MAX_SLICES} slices.")
        return
    if count > 1 and values["node_id"]:
        yield Fault(
            f"--node-id names one node, and {count} are asked for.", "Use --node-prefix for several slices."
        )
    if count == 1 and values["node_prefix"]:
        yield Fault(
            "--node-prefix is for several slices, and one is asked for.",
            "Use --node-id, or give --node-count.",
        )
    if values["workload_type"] and values["workload_type"] not in _WORKLOADS:
        yield Fault(
            f"--workload-type {values['workload_type']!r} is unknown.", f"Use {' or '.join(_WORKLOADS)}."
        )


def _slice_type(values: Values) -> AcceleratorType | InvalidRequestError | None:
    try:
        if values["accelerator_type"]:
            return AcceleratorType.parse(values["accelerator_type"])
        if values["type"] and values["topology"]:
            return AcceleratorType.from_topology(generation_name(values["type"]), values["topology"])
    except InvalidRequestError as error:
        return error
    return None


def _check_type(values: Values) -> Iterator[Fault]:
    by_name, by_shape = bool(values["accelerator_type"]), bool(values["type"] or values["topology"])
    if by_name and by_shape:
        yield Fault("Both an accelerator type and a type with topology are given.", "Give one of the two.")
        return
    kind = _slice_type(values)
    if kind is None:
        yield Fault(
            "No accelerator type is given.",
            "Give --accelerator-type, as v4-16, or both --type and --topology, as v4 and 2x2x2.",
        )
    elif isinstance(kind, InvalidRequestError):
        yield Fault(kind.what, kind.fix, kind)
    elif not kind.generation.in_cloud_tpu_api:
        yield Fault(
            f"{kind.name} cannot be had as a queued resource: TPU {kind.generation.name} is offered through GKE only.",
            "Ask for v4, v5e, v5p or v6e here; planning and arithmetic work for it all the same.",
        )
    else:
        yield from _check_generation(values, kind)


def _check_generation(values: Values, kind: AcceleratorType) -> Iterator[Fault]:
    name = kind.generation.name
    if values["node_count"] != 1 and not kind.generation.multislice:
        yield Fault(
            f"Multislice needs TPU v4 or later; {name} has single slices only.",
            "Ask for one slice, or for v4, v5e, v5p or v6e.",
        )
    runtime, own = values["runtime_version"], kind.runtime_version
    if runtime and not values["force"] and not _runtime_fits(runtime, kind):
        yield Fault(
            f"Runtime version {runtime} is not made for {kind.name}, whose own is {own}.",
            f"Leave --runtime-version out or use {own}; force=True (--force-runtime-version) sends it anyway.",
        )


def _runtime_fits(runtime: str, kind: AcceleratorType) -> bool:
    """A version fits when it names the type's generation, or none where v4 takes the general images."""
    named = re.search(
        r"(?:tpu-?|vm-)?v(\d)(?:-?(lite)|([ep]))?(?![\da-z])", runtime.removeprefix("v2-alpha-")
    )
    if runtime == kind.runtime_version:
        return True
    if named is None:
        return kind.generation.name == "v4"
    generation = f"v{named[1]}" + ("e" if named[2] else named[3] or "")
    generation = {"v5": "v5p", "v6": "v6e"}.get(generation, generation)
    return generation == kind.generation.name


def _check_capacity(values: Values) -> Iterator[Fault]:
    reserved = values["reserved"] or values["reservation"] or values["reservation_host"]
    tiers = {
        "--spot": values["spot"],
        "--reserved": reserved,
        "--best-effort": values["best_effort"],
    }
    chosen = [flag for flag, given in tiers.items() if given]
    if values["guaranteed"] and (values["spot"] or values["best_effort"]):
        chosen.append("--guaranteed")
    if len(chosen) > 1:
        yield Fault(f"{' and '.join(chosen)} exclude each other.", "Choose one, or none for on-demand.")
    if values["reservation"] and values["reservation_host"]:
        yield Fault("Both a reservation and a reservation host are given.", "Give one of the two.")
    if values["reservation"] and not _RESERVATION.fullmatch(values["reservation"]):
        yield Fault(
            f"Reservation {values['reservation']!r} is not a reservation's name.",
            "Give its name alone, or projects/PROJECT/locations/ZONE/reservations/NAME.",
        )
    if values["reservation_host"] and not re.fullmatch(
        r"(projects|folders|organizations)/[^/]+", values["reservation_host"]
    ):
        yield Fault(
            f"Reservation host {values['reservation_host']!r} is not one.",
            "Give projects/ID, folders/ID or organizations/ID.",
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
    kind = _slice_type(values)
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


_CHECKS: tuple[Callable[[Values], Iterator[Fault]], ...] = (
    _check_names,
    _check_nodes,
    _check_type,
    _check_capacity,
    _check_labels,
    _check_metadata,
    _check_timing,
    _check_attachments,
)
