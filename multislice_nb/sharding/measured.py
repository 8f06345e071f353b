"""From measured rows to the cost model: a prediction for each, and the efficiency that they show."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from multislice_nb import tpu
from multislice_nb.errors import InvalidRequestError
from multislice_nb.sharding.calibration import Calibration
from multislice_nb.sharding.cost import Prediction, predict
from multislice_nb.sharding.model import Model
from multislice_nb.sharding.parallelism import AXES, Parallelism

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["WORKLOADS", "calibrate", "calibration_path", "predict_row"]

WORKLOADS = frozenset({"mlp", "transformer"})
"""Those that the cost model has closed forms of."""


def predict_row(
    row: Mapping[Any, Any], *, batch: float | None = None, calibration: Calibration | None = None
) -> Prediction:
    """What the cost model says of a measured configuration of one of the workloads.

    Args:
        row: With the columns of a sweep's results: workload (`mlp` if left out), its sizes, accelerator_type,
            slices, the six degrees, batch_per_device and remat (if not left out).
        batch: Another batch per device than the row's.
        calibration: Efficiencies.
    """
    shape = tpu.AcceleratorType.parse(str(row["accelerator_type"]))
    degrees = {
        name: int(row[name]) for name in (f"{network}_{axis}" for network in ("ici", "dcn") for axis in AXES)
    }
    per_device = float(row["batch_per_device"]) if batch is None else batch
    model, tokens = _model(row)
    return predict(
        model,
        shape,
        batch_per_chip=per_device * tokens * shape.generation.devices_per_chip,
        slices=int(row["slices"]),
        strategy=Parallelism(**degrees),
        calibration=calibration,
    )


def _model(row: Mapping[Any, Any]) -> tuple[Model, int]:
    """The model that a row is of, trained as the row was, and the tokens of one row of its batch."""
    embedding, layers = int(row["embedding"]), int(row["layers"])
    if row.get("workload", "mlp") == "mlp":
        model, tokens = Model.mlp(embedding, layers), 1
    else:
        sizes = {name: int(row[name]) for name in ("heads", "sequence", "vocabulary")}
        model, tokens = Model.decoder(embedding=embedding, layers=layers, **sizes), sizes["sequence"]
    return (model.recomputing() if float(row.get("remat") or 0) == 1 else model), tokens


def calibrate(rows: Iterable[Mapping[Any, Any]]) -> Calibration:
    """The efficiency of matrix products that measurements on a TPU show.

    Only steps count that are predicted to be bound by compute: the others say something else.

    Args:
        rows: Of a sweep of the workloads here, such as `results.rows`, all of one generation.

    Returns:
        A calibration to hand to `predict` and `plan`; save it at `calibration_path(results.path)`.

    Raises:
        InvalidRequestError: If there is no such measurement, or they are of several generations or workloads.
    """
    measured = [row for row in rows if row.get("status") == "ok" and row.get("workload", "mlp") in WORKLOADS]
    kinds = {str(row.get("device_kind")) for row in measured}
    found = {tpu.generation_of_device(kind) for kind in kinds}
    generation = found.pop() if len(found) == 1 else None
    if generation is None:
        raise InvalidRequestError(
            f"These measurements are of {', '.join(sorted(kinds)) or 'nothing'}, which is not one kind of TPU.",
            fix="Give the rows of a sweep on one kind of TPU, of the workloads mlp or transformer.",
        )
    if len({row.get("workload", "mlp") for row in measured}) > 1:
        raise InvalidRequestError(
            "These measurements are of several workloads, whose efficiencies differ.",
            fix="Give the rows of one workload.",
        )
    begun = Calibration.default(generation)
    pairs = [(float(row["step_seconds"]), predict_row(row, calibration=begun)) for row in measured]
    bound = [
        # What is left of the step once its other parts are taken off.
        (seconds - (one.step_seconds - one.compute_seconds), one.compute_seconds)
        for seconds, one in pairs
        if one.bound == "compute"
    ]
    dates = sorted(str(row["date"]) for row in measured if row.get("date"))
    when = f", {dates[0]} to {dates[-1]}" if dates else ""
    return begun.fitted(bound, source=f"{len(bound)} measurements on {measured[0]['accelerator_type']}{when}")


def calibration_path(results: Path | str) -> Path:
    """Where the calibration of a results file is kept: beside it."""
    return Path(results).with_suffix(".calibration.json")
