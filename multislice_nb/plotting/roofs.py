"""The roofline: what a chip can reach for each byte that it moves through HBM, over ICI and over DCN."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from multislice_nb import sharding, tpu
from multislice_nb._texts import grouped
from multislice_nb.plotting.figure import Chart, new_chart
from multislice_nb.plotting.style import ThemeName, dress, head, numbered, series_style, write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from multislice_nb.plotting.style import Theme

__all__ = ["roofline"]

_ROOFS = {"hbm": "HBM", "ici": "ICI", "dcn": "DCN"}


def roofline(
    generation: str | tpu.Generation,
    plans: Sequence[sharding.Plan] = (),
    *,
    theme: ThemeName = "light",
) -> Chart:
    """Attainable TFLOP/s per chip against FLOPs per byte, with a roof for HBM, ICI and DCN.

    Below its ridge a roof is bandwidth, above it compute. Each plan is three points, one on the scale of each
    roof, at the TFLOP/s predicted for it: the point that is nearest to its roof tells what holds the plan back.

    Args:
        generation: Whose roofs.
        plans: Compiled steps to mark, from `sharding.plan` or `sharding.compare_plans`.
        theme: `light` or `dark`.

    Returns:
        A figure; `table` has a row for each point and for each ridge.

    Raises:
        AcceleratorTypeError: If there is no such generation.
    """
    kind = tpu.generation(generation)
    table = pd.DataFrame([*_ridges(kind), *(point for plan in plans for point in _points(plan))])
    chart, axes, colours = new_chart(table, theme, size=(7.6, 4.8))
    low, high = _range(table)
    peak = kind.bf16_flops_per_chip / 1e12
    x = np.geomspace(low, high, 200)
    for number, label in enumerate(_ROOFS.values()):
        style = series_style(colours, number)
        ridge = float(table[table["roof"] == label]["flops_per_byte"].iloc[0])
        axes.plot(x, np.minimum(peak, peak * x / ridge), label=f"{label} roof", **style | {"marker": "none"})
        axes.plot([ridge], [peak], **style | {"linestyle": "none", "markersize": 8.5, "zorder": 4})
        _label_ridge(axes, ridge, peak, colours)
        marks = table[(table["roof"] == label) & (table["what"] == "plan")]
        if len(marks):
            axes.plot(
                marks["flops_per_byte"],
                marks["tflops_per_chip"],
                **style
                | {
                    "linestyle": "none",
                    "markersize": 8,
                    "markerfacecolor": "none",
                    "markeredgecolor": style["color"],
                    "markeredgewidth": 1.8,
                    "label": f"plans on {label}",
                },
            )
    _scales(axes, low, high, peak)
    dress(axes, colours, x="Intensity (FLOPs per byte moved)", y="TFLOP/s per chip")
    head(
        chart,
        colours,
        title=f"Roofline of {kind.name}: peak {grouped(peak)} TFLOP/s per chip in bf16",
        note="ICI: all links of a chip, one way; DCN: a chip's share of its host",
        columns=3 if plans else None,
    )
    return chart


def _ridges(kind: tpu.Generation) -> list[dict[str, object]]:
    return [
        {
            "what": "ridge",
            "roof": label,
            "strategy": "",
            "flops_per_byte": 8 * sharding.arithmetic_intensity(kind, network),  # type: ignore[arg-type]  # keys of _ROOFS
            "tflops_per_chip": kind.bf16_flops_per_chip / 1e12,
        }
        for network, label in _ROOFS.items()
    ]


def _points(plan: sharding.Plan) -> list[dict[str, object]]:
    """A plan on the scale of each roof that it moves bytes under; none if it does not fit."""
    if plan.prediction is None or plan.flops is None:
        return []
    moved = {"HBM": plan.bytes_accessed, "ICI": plan.ici_bytes, "DCN": plan.dcn_bytes}
    return [
        {
            "what": "plan",
            "roof": roof,
            "strategy": plan.parallelism.name,
            "flops_per_byte": plan.flops / amount,
            "tflops_per_chip": plan.prediction.tflops_per_chip,
        }
        for roof, amount in moved.items()
        if amount
    ]


def _range(table: pd.DataFrame) -> tuple[float, float]:
    values = table["flops_per_byte"].astype(float)
    return float(values.min()) / 8, float(values.max()) * 4


def _label_ridge(axes: Axes, ridge: float, peak: float, colours: Theme) -> None:
    write(axes, colours, grouped(ridge), (ridge, peak), off=(0, 8), ha="center")


def _scales(axes: Axes, low: float, high: float, peak: float) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(peak / 60, peak * 2)
    numbered(axes.xaxis)
    numbered(axes.yaxis)
