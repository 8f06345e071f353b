"""What can be wrong with a request, found before anything is sent.

Each check looks at one thing and reports every fault it finds, so that a request is mended in one go. Rules
are the Cloud TPU API's and Compute Engine's own, as their reference pages state them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multislice_nb.cloud.field_checks import FIELD_CHECKS, STARTUP_SCRIPT, Fault, Values
from multislice_nb.cloud.kinds import slice_type_of, type_name
from multislice_nb.cloud.times import parse_duration, parse_time
from multislice_nb.errors import InvalidRequestError
from multislice_nb.tpu import AcceleratorType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["MAX_SLICES", "Fault", "faults_of", "normalise"]

MAX_SLICES = 256
"""The Multislice overview: limited to 256 slices at most."""

# CreateQueuedResourceRequest.queued_resource_id and MultisliceParams.node_id_prefix, Cloud TPU API v2.
_ID = re.compile(r"[A-Za-z0-9_.~+%-]+")
_RESERVATION = re.compile(
    r"[a-zA-Z0-9-]+|(projects|folders|organizations)/[^/]+(/(locations|zones)/[^/]+)?/reservations/[^/]+"
)
_WORKLOADS = ("THROUGHPUT_OPTIMIZED", "AVAILABILITY_OPTIMIZED")
_VERSIONS = ("v2", "v2alpha1")
_ALPHA_FIELDS = ("best_effort", "autocheckpoint_enabled", "workload_type")


def normalise(values: Values) -> list[Fault]:
    """Turn what people write into what is meant, in place; faults are what cannot be read."""
    faults: list[Fault] = []
    _read_times(values, faults)
    _read_startup_script(values, faults)
    values["labels"] = {str(key): str(value) for key, value in dict(values["labels"]).items()}
    values["metadata"] = {str(key): str(value) for key, value in dict(values["metadata"]).items()}
    kind = values["accelerator_type"]
    if isinstance(kind, AcceleratorType) and not kind.has_default_topology and not values["topology"]:
        # Its name alone means another shape.
        values |= {"accelerator_type": None, "type": kind.generation.name, "topology": kind.topology}
    if values["accelerator_type"]:
        values["accelerator_type"] = str(values["accelerator_type"]).strip().lower()
    if values["type"]:
        values["type"] = type_name(str(values["type"]))
    if any(values[name] for name in _ALPHA_FIELDS):
        values["api_version"] = "v2alpha1"
    return faults


def faults_of(values: Values) -> list[Fault]:
    """Everything that is wrong with a request whose values were normalised."""
    found = [fault for check in _CHECKS for fault in check(values)]
    if values["runtime_version"] is None:
        kind = slice_type_of(values)
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


def _check_type(values: Values) -> Iterator[Fault]:
    by_name, by_shape = bool(values["accelerator_type"]), bool(values["type"] or values["topology"])
    if by_name and by_shape:
        yield Fault("Both an accelerator type and a type with topology are given.", "Give one of the two.")
        return
    kind = slice_type_of(values)
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
            f"Leave --runtime-version out or use {own}; force=True (--force) sends it anyway.",
        )


def _runtime_fits(runtime: str, kind: AcceleratorType) -> bool:
    """A version fits when it names the type's generation, or none where v4 takes the general images."""
    # The v2 in front of some is the API's.
    own = re.sub(r"^v2-(?:alpha-)?", "", runtime)
    named = re.search(r"(?:tpu-?|vm-)?v(\d)(?:-?(lite)(?:pod)?|([ep]))?(?![\da-z])", own)
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
    if values["spot"] or values["best_effort"]:
        chosen += ["--guaranteed"] * bool(values["guaranteed"])
        chosen += ["--min-duration"] * (values["min_duration"] is not None)
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


_CHECKS: tuple[Callable[[Values], Iterator[Fault]], ...] = (
    _check_names,
    _check_nodes,
    _check_type,
    _check_capacity,
    *FIELD_CHECKS,
)
