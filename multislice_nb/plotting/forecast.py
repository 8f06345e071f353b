"""Predicted and measured together: the cost model's lines under the points of a sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from multislice_nb import tpu
from multislice_nb.errors import InvalidRequestError
from multislice_nb.plotting.apart import told_apart
from multislice_nb.plotting.figure import Chart, new_chart
from multislice_nb.plotting.style import ThemeName, dress, head, series_style
from multislice_nb.plotting.throughput import batch_axis
from multislice_nb.sharding import predict_row
from multislice_nb.sharding.measured import WORKLOADS

if TYPE_CHECKING:
    import pandas as pd

    from multislice_nb.sharding import Calibration

__all__ = ["predicted"]

_DEGREES = ("ici_data", "ici_fsdp", "ici_tensor", "dcn_data", "dcn_fsdp", "dcn_tensor")
_NEEDED = (
    "strategy",
    "batch_per_device",
    "tflops_per_chip",
    "accelerator_type",
    "slices",
    "embedding",
    "layers",
    *_DEGREES,
)


def predicted(
    frame: pd.DataFrame,
    *,
    calibration: Calibration | None = None,
    theme: ThemeName = "light",
) -> Chart:
    """The cost model's TFLOP/s per chip as lines, and the measured ones as points.

    Args:
        frame: Rows of a sweep on a TPU, with the columns of `multislice_nb.experiments`. Rows of workloads
            other than the MLP and the transformer are left out.
        calibration: Efficiencies for the prediction, such as those fitted to these measurements.
        theme: `light` or `dark`.

    Returns:
        A figure; `table` has each measurement with its prediction and their ratio.

    Raises:
        InvalidRequestError: If a column is missing, or the rows were measured on something else than a TPU, which
            the cost model knows nothing of.
    """
    rows = _checked(frame)
    table = rows.assign(
        predicted_tflops_per_chip=[
            _predict(row, float(row["batch_per_device"]), calibration) for _, row in rows.iterrows()
        ]
    )
    table["measured_over_predicted"] = table["tflops_per_chip"] / table["predicted_tflops_per_chip"]
    chart, axes, colours = new_chart(table, theme, size=(7.4, 4.6))
    batches = rows["batch_per_device"].astype(float)
    curve = np.geomspace(float(batches.min()) / 1.5, float(batches.max()) * 1.5, 60)
    for number, (strategy, group) in enumerate(table.groupby("strategy", sort=False)):
        style = series_style(colours, number)
        line = [_predict(group.iloc[0], batch, calibration) for batch in curve]
        axes.plot(curve, line, **style | {"marker": "none", "linewidth": 1.4})
        axes.plot(
            group["batch_per_device"],
            group["tflops_per_chip"],
            label=str(strategy),
            **style | {"linestyle": "none", "markersize": 8},
        )
    batch_axis(axes, sorted(rows["batch_per_device"].unique()))
    axes.set_ylim(bottom=0)
    dress(axes, colours, x="Batch per device (examples)", y="TFLOP/s per chip")
    off = float((table["measured_over_predicted"] - 1).abs().median())
    head(
        chart,
        colours,
        title="Predicted (lines) and measured (points)",
        note=f"Median distance {off:.0%}; efficiencies: {calibration.source if calibration else 'the defaults'}",
    )
    return chart


def _checked(frame: pd.DataFrame) -> pd.DataFrame:
    missing = [name for name in _NEEDED if name not in frame.columns]
    if missing:
        raise InvalidRequestError(
            f"These results have no column {missing[0]}.",
            fix="Give the frame of a sweep of the MLP or the transformer.",
        )
    measured = frame[frame["tflops_per_chip"].notna()]
    if "workload" in measured.columns:
        measured = measured[measured["workload"].isin(WORKLOADS)]
    if "device_kind" in measured.columns:
        kinds = sorted(set(measured["device_kind"].dropna()))
        others = [kind for kind in kinds if tpu.generation_of_device(kind) is None]
        if others:
            raise InvalidRequestError(
                f"These results were measured on {', '.join(others)}, and the cost model knows TPUs alone.",
                fix="Give measurements of a TPU; for the emulator use plot_tflops.",
            )
    if measured.empty:
        raise InvalidRequestError(
            "These results have no measurement of the MLP or the transformer.", fix="Sweep one of them."
        )
    return told_apart(measured)


def _predict(row: pd.Series, batch: float, calibration: Calibration | None) -> float:
    return predict_row(row.to_dict(), batch=batch, calibration=calibration).tflops_per_chip
