"""From what the workers measured to one row of results: times across hosts, TFLOP/s, intensity, provenance."""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import math
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from multislice_nb.experiments.configuration import Configuration
    from multislice_nb.experiments.measure import Measured, Survey
    from multislice_nb.experiments.results import Row


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where a sweep runs.

    Attributes:
        cluster: Name of the queued resource, or of this machine.
        accelerator_type: Of each slice, as in `v4-16`.
        generation: As in `v4`.
        device_kind: What JAX calls its devices: those of emulated slices are CPUs.
        slices: How many.
        chips: Of all these slices.
        devices: JAX devices of all these slices.
        slices_attached: How many the cluster has; those beyond `slices` are idle.
    """

    cluster: str
    accelerator_type: str
    generation: str
    device_kind: str
    slices: int
    chips: int
    devices: int
    slices_attached: int

    @property
    def devices_per_slice(self) -> int:
        """JAX devices of a slice."""
        return self.devices // self.slices

    def first(self, slices: int) -> Place:
        """The first so many slices of it."""
        return dataclasses.replace(
            self,
            slices=slices,
            chips=self.chips // self.slices * slices,
            devices=self.devices_per_slice * slices,
        )


def row_of(
    configuration: Configuration, place: Place, survey: Survey, measured: Sequence[Sequence[Measured]]
) -> Row:
    """The row of a configuration that was measured.

    Args:
        configuration: What was measured.
        place: Where.
        survey: What a worker says of itself.
        measured: For each round of steps, what each worker measured, by rank. At least one round.
    """
    first = measured[0][0]
    row = _common(configuration, place, survey) | {
        "status": first["status"],
        "message": first["message"] or _about_loss(first["loss"]),
        "rounds": len(measured),
        "loss": first["loss"] if _is_number(first["loss"]) else None,
        "flops_per_device": first["flops"],
        "flops_per_device_matmul": _matmul_flops(configuration, place),
        "flops_per_device_6bp": 6
        * tokens_per_slice(configuration, place)
        * configuration.workload.parameters
        / place.devices_per_slice,
        "argument_bytes_per_device": first["argument_bytes"],
        "peak_bytes_per_device": first["peak_bytes"],
        "compile_seconds": max(one["compile_seconds"] for one in measured[0]),
    }
    if first["status"] != "ok":
        return row
    seconds = slowest(measured)
    return row | _times(seconds) | _rates(seconds, first["flops"] * place.devices / place.chips)


def failed_row(configuration: Configuration, place: Place, survey: Survey, status: str, message: str) -> Row:
    """The row of a configuration that could not be measured, and why."""
    return _common(configuration, place, survey) | {"status": status, "message": message}


def slowest(measured: Sequence[Sequence[Measured]]) -> list[float]:
    """Seconds of each step on the host that took longest for it, which is when the step was over for all."""
    rounds = [np.max([one["step_seconds"] for one in ranks], axis=0) for ranks in measured]
    return [float(second) for second in np.concatenate(rounds)]


def spread(seconds: Sequence[float]) -> float:
    """Half the distance between the quartiles, as a share of the median."""
    low, middle, high = np.percentile(seconds, (25, 50, 75))
    return float((high - low) / 2 / middle)


def tokens_per_slice(configuration: Configuration, place: Place) -> int:
    """Tokens of a step that one slice works on."""
    workload = configuration.workload
    return configuration.batch_per_device * place.devices_per_slice * workload.tokens_per_example


def intensity(configuration: Configuration, place: Place) -> float | None:
    """FLOPs of the backward pass for each bit that a slice sends over DCN; None for a single slice.

    The documented bound of the Multislice overview, which holds when slices are joined by data parallelism alone;
    None otherwise.
    """
    from multislice_nb.sharding import operational_intensity

    parallelism = configuration.parallelism
    if place.slices == 1 or parallelism.dcn[0] != place.slices:
        return None
    return float(operational_intensity(tokens_per_slice(configuration, place), slices=place.slices))


def _is_number(loss: float | None) -> bool:
    """JSON has neither NaN nor infinity, and a row with one could not be kept."""
    return loss is not None and math.isfinite(loss)


def _about_loss(loss: float | None) -> str:
    if loss is None or _is_number(loss):
        return ""
    return f"The loss became {loss}: its times count, but a lower learning rate would train."


def _times(seconds: list[float]) -> dict[str, Any]:
    low, middle, high = (float(value) for value in np.percentile(seconds, (25, 50, 75)))
    return {
        "step_seconds": middle,
        "step_seconds_q1": low,
        "step_seconds_q3": high,
        "step_seconds_all": seconds,
        "spread": spread(seconds),
    }


def _rates(seconds: list[float], flops_per_chip: float) -> dict[str, float]:
    """The fastest quarter of the steps gives the high mark, the slowest the low one."""
    low, middle, high = (flops_per_chip / value / 1e12 for value in np.percentile(seconds, (75, 50, 25)))
    return {"tflops_per_chip": float(middle), "tflops_low": float(low), "tflops_high": float(high)}


def _matmul_flops(configuration: Configuration, place: Place) -> float:
    batch = configuration.batch_per_device * place.devices
    return configuration.workload.matmul_flops(batch) / place.devices


def _common(configuration: Configuration, place: Place, survey: Survey) -> Row:
    place_columns = dataclasses.asdict(place)
    provenance = {name: value for name, value in survey.items() if name not in {"devices", "available_bytes"}}
    return {
        "key": key_of(configuration, place),
        "strategy": configuration.strategy,
        "parallelism": configuration.parallelism.name,
        **configuration.settings,
        "batch": configuration.batch_per_device * place.devices,
        "tokens_per_slice": tokens_per_slice(configuration, place),
        "parameters": configuration.workload.parameters,
        "operational_intensity": intensity(configuration, place),
        **place_columns,
        **provenance,
        "multislice_nb": version(),
        "commit": commit(),
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
    }


def key_of(configuration: Configuration, place: Place) -> str:
    """What makes a measurement the same one: the configuration, the shape and number of slices, and their devices."""
    return configuration.key(
        accelerator_type=place.accelerator_type, slices=place.slices, device_kind=place.device_kind
    )


@functools.cache
def version() -> str:
    """Version of this package."""
    import multislice_nb

    return multislice_nb.__version__


@functools.cache
def commit() -> str | None:
    """Commit of this package where it runs from a checkout, with a plus sign if files differ; else None."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
