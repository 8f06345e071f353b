"""Operational intensity against tokens per slice, with the thresholds of the hardware."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from multislice_nb import sharding, tpu
from multislice_nb._texts import grouped
from multislice_nb.errors import InvalidRequestError
from multislice_nb.plotting.figure import Chart, new_chart
from multislice_nb.plotting.style import ThemeName, dress, head, numbered, series_style, write

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from multislice_nb.plotting.style import Theme

__all__ = ["intensity", "plot_intensity"]

_LABELLED_CROSSINGS = 4  # more would be written over each other; the table has them all

Generations = str | tpu.Generation | Sequence[str | tpu.Generation]


def plot_intensity(
    generation: Generations = "v4",
    slices: int | Sequence[int] = (2, 4),
    *,
    exact: bool = False,
    frame: pd.DataFrame | None = None,
    theme: ThemeName = "light",
) -> Chart:
    """When does DCN not slow training down? Operational intensity of data parallelism over tokens per slice.

    Each slice count is a line, each generation a horizontal threshold: above it, the gradients cross DCN while
    the pass backward computes. The crossings are the smallest batches: for v4 176 000 tokens per slice with two
    slices and 352 000 with more.

    Args:
        generation: One generation or several.
        slices: Slice counts, each 2 or more. By the overview's bound all counts above two share a line; `exact`
            tells them apart.
        exact: Use a ring all-reduce's exact traffic instead of the overview's bounds.
        frame: Measurements to mark on the lines: `tokens_per_slice`, `operational_intensity`.
        theme: `light` or `dark`.

    Returns:
        A figure; `table` has a row for each crossing: generation, slices, FLOPs per bit, smallest and advised
        tokens per slice.

    Raises:
        AcceleratorTypeError: If there is no such generation.
        InvalidRequestError: If a slice count is below 2.
    """
    names = [generation] if isinstance(generation, str | tpu.Generation) else generation
    kinds = [tpu.generation(name) for name in names]
    counts = _slice_counts([slices] if isinstance(slices, int) else slices)
    table = _crossings(kinds, counts, exact=exact)
    points = _points(frame)
    chart, axes, colours = new_chart(table, theme, size=(7.6, 4.8))
    low, high = _range(table, points)
    for number, (label, members) in enumerate(_lines(counts, exact=exact).items()):
        tokens = np.geomspace(low, high, 50)
        values = [sharding.operational_intensity(batch, members, exact=exact) for batch in tokens]
        style = series_style(colours, number)
        axes.plot(tokens, values, **style | {"marker": "none"})
        axes.plot([], [], label=label, **style)  # the legend shows the marker of the crossings too
        _mark_crossings(axes, table[table["slices"] == members], style)
    _thresholds(axes, kinds, low, colours)
    _mark_points(axes, points, colours)
    _scales(axes, low, high)
    if len(table) <= _LABELLED_CROSSINGS:
        _label_crossings(axes, table, colours)
    dress(
        axes,
        colours,
        x="Batch (tokens per slice and step)",
        y="Operational intensity (FLOPs per bit over DCN)",
    )
    head(
        chart,
        colours,
        title="Data parallelism between slices: compute for each bit over DCN",
        note="Above its threshold a TPU computes for longer than the gradients take to cross DCN",
    )
    return chart


def intensity(frame: pd.DataFrame, *, generation: Generations | None = None, **options: Any) -> Chart:
    """Operational intensity of measured configurations, on the lines of their slice counts.

    Args:
        frame: Measurements: `tokens_per_slice`, `operational_intensity`, and `generation` and `slices`.
        generation: Instead of the one measured.
        **options: Those of `plot_intensity`.

    Raises:
        InvalidRequestError: If nothing was measured on two slices or more.
    """
    points = _points(frame)
    if points.empty:
        raise InvalidRequestError(
            "None of these results has traffic between slices.",
            fix="Sweep a queued resource of two or more slices with data parallelism over DCN.",
        )
    known = [str(name) for name in dict.fromkeys(points.get("generation", []))]
    counts = sorted({int(count) for count in points.get("slices", [])} or {2, 4})
    return plot_intensity(generation or known or "v4", options.pop("slices", counts), frame=frame, **options)


def _slice_counts(slices: Sequence[int]) -> list[int]:
    whole = all(isinstance(count, Integral) for count in slices)
    counts = sorted(set(slices)) if whole else []
    if not counts or counts[0] < 2:
        raise InvalidRequestError(
            f"Slice counts {list(slices)} have no traffic between slices.", fix="Give counts of 2 or more."
        )
    return counts


def _crossings(kinds: list[tpu.Generation], counts: list[int], *, exact: bool) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "generation": kind.name,
                "slices": count,
                "flops_per_bit": sharding.arithmetic_intensity(kind),
                "smallest_tokens_per_slice": sharding.smallest_batch(kind, count, exact=exact),
                "advised_tokens_per_slice": sharding.advised_batch(kind, count, exact=exact),
            }
            for kind in kinds
            for count in counts
        ]
    )


def _points(frame: pd.DataFrame | None) -> pd.DataFrame:
    needed = ["tokens_per_slice", "operational_intensity"]
    if frame is None or not set(needed) <= set(frame.columns):
        return pd.DataFrame(columns=needed)
    measured = frame[frame["operational_intensity"].notna()]
    if "status" in measured.columns:
        measured = measured[measured["status"] == "ok"]
    return measured


def _lines(counts: list[int], *, exact: bool) -> dict[str, int]:
    """Labels, and a slice count that stands for the line; by the bound all above two share one."""
    if exact:
        return {f"{count} slices": count for count in counts}
    more = [count for count in counts if count > 2]
    lines = {"2 slices": 2} if 2 in counts else {}
    if more:
        lines[" or ".join(f"{count}" for count in more[:3]) + (" ..." if more[3:] else "") + " slices"] = (
            more[0]
        )
    return lines


def _range(table: pd.DataFrame, points: pd.DataFrame) -> tuple[float, float]:
    """A range of tokens that holds all crossings and points with room around them."""
    tokens = [*table["smallest_tokens_per_slice"], *points["tokens_per_slice"].astype(float)]
    return min(tokens) / 4, max(tokens) * 4


def _mark_crossings(axes: Axes, rows: pd.DataFrame, style: dict[str, Any]) -> None:
    axes.plot(
        rows["smallest_tokens_per_slice"],
        rows["flops_per_bit"],
        **style | {"linestyle": "none", "markersize": 8.5, "zorder": 4},
    )


def _label_crossings(axes: Axes, table: pd.DataFrame, colours: Theme) -> None:
    """Lead each crossing down to the axis and write its batch beside the lead, once where crossings coincide."""
    bottom = axes.get_ylim()[0]
    highest = table.groupby("smallest_tokens_per_slice")["flops_per_bit"].max()
    for tokens, value in zip(highest.index.to_numpy(float), highest.to_numpy(float), strict=True):
        axes.vlines([tokens], bottom, value, colors=colours.faint, linewidth=1, linestyles=":")
        text = f"{_short(tokens)} tokens"
        write(axes, colours, text, (tokens, bottom), off=(-3, 6), rotation=90, ha="right", va="bottom")


def _thresholds(axes: Axes, kinds: list[tpu.Generation], left: float, colours: Theme) -> None:
    """A line for each threshold, named at its left end; generations with the same one share it."""
    named: dict[float, list[str]] = {}
    for kind in kinds:
        named.setdefault(sharding.arithmetic_intensity(kind), []).append(kind.name)
    previous = 0.0
    for value, names in sorted(named.items(), reverse=True):
        below = previous and value > previous * 0.7
        axes.axhline(value, color=colours.ink, linewidth=1.2)
        text = f"{', '.join(names)}: {grouped(value)} FLOPs/bit"
        off, side = ((5, -4), "top") if below else ((5, 4), "bottom")
        write(axes, colours, text, (left, value), off=off, va=side)
        previous = value


def _mark_points(axes: Axes, points: pd.DataFrame, colours: Theme) -> None:
    if len(points):
        axes.plot(
            points["tokens_per_slice"].astype(float),
            points["operational_intensity"].astype(float),
            linestyle="none",
            marker="x",
            markersize=7,
            markeredgewidth=1.8,
            color=colours.ink,
            label="measured",
        )


def _scales(axes: Axes, low: float, high: float) -> None:
    from matplotlib.ticker import FuncFormatter

    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    lines = [line.get_ydata() for line in axes.get_lines()]
    bottom = min(float(np.min(np.asarray(values, dtype=float))) for values in lines if np.size(values))
    axes.set_ylim(bottom=bottom)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    numbered(axes.yaxis)


def _short(value: float) -> str:
    """A count as people say it: 176 k, 1.4 M."""
    if value <= 0 or not math.isfinite(value):
        return f"{value:g}"
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"
