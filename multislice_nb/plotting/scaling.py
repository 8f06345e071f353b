"""Weak scaling: what more slices bring, against what they would bring if nothing were lost."""

from __future__ import annotations

import pandas as pd

from multislice_nb.errors import InvalidRequestError
from multislice_nb.plotting.apart import told_apart
from multislice_nb.plotting.figure import Chart, new_chart
from multislice_nb.plotting.style import ThemeName, dress, head, numbered, series_style

__all__ = ["weak_scaling"]

_NEEDED = ("strategy", "slices", "chips", "tflops_per_chip")


def weak_scaling(frame: pd.DataFrame, *, title: str | None = None, theme: ThemeName = "light") -> Chart:
    """TFLOP/s of all slices together against the number of slices, the batch of a slice kept.

    Args:
        frame: Measurements: `strategy`, `slices`, `chips` (of all slices), `tflops_per_chip`. Where a strategy
            has several batch sizes, that of the most numbers of slices counts, of several the largest; one without
            a batch size that two numbers of slices have is left out.
        title: Instead of a general one, as for predictions.
        theme: `light` or `dark`.

    Returns:
        A figure; `table` has the total, the linear total and the efficiency of each point.

    Raises:
        InvalidRequestError: If a column is missing, or no batch size was measured on two numbers of slices.
    """
    table = _table(frame)
    largest = float(table["total_tflops"].max())
    scale, unit = (1.0, "TFLOP/s") if largest >= 1 else (1e3, "GFLOP/s")
    chart, axes, colours = new_chart(table, theme, size=(7.0, 4.6))
    for number, strategy in enumerate(dict.fromkeys(table["strategy"])):
        rows = table[table["strategy"] == strategy]
        style = series_style(colours, number)
        label = f"{strategy} ({rows['efficiency'].iloc[-1]:.0%} of linear)"
        axes.plot(rows["slices"], rows["total_tflops"] * scale, label=label, **style)
        axes.plot(
            rows["slices"],
            rows["linear_tflops"] * scale,
            color=style["color"],
            linewidth=1,
            linestyle=":",
        )
    counts = sorted(table["slices"].unique())
    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, [str(count) for count in counts], minor=False)
    axes.set_yscale("log", base=2)
    numbered(axes.yaxis)
    axes.minorticks_off()
    dress(axes, colours, x="Slices", y=f"{unit}, all slices together")
    head(
        chart,
        colours,
        title=title if title is not None else "Weak scaling over slices",
        note="The batch of each slice is kept; dotted: linear",
    )
    return chart


def _table(frame: pd.DataFrame) -> pd.DataFrame:
    missing = [name for name in _NEEDED if name not in frame.columns]
    measured = frame if missing else frame[frame["tflops_per_chip"].notna()]
    if missing:
        raise _refused(f"These results have no column {missing[0]}.")
    if measured["slices"].nunique() < 2:
        raise _refused("These results are of one number of slices.")
    groups = [
        _one_batch(group)
        for _, group in told_apart(measured, by_slices=False).groupby("strategy", sort=False)
    ]
    rows = [row for group in groups if len(set(group["slices"])) > 1 for row in _of_strategy(group)]
    if not rows:
        raise _refused("No strategy of these results has one batch size on two numbers of slices.")
    return pd.DataFrame(rows)


def _refused(what: str) -> InvalidRequestError:
    return InvalidRequestError(
        what,
        fix="Give measurements of the same strategies and batch sizes on at least two numbers of slices.",
    )


def _one_batch(group: pd.DataFrame) -> pd.DataFrame:
    """The rows of the batch that the most numbers of slices have, the largest of several."""
    if "batch_per_device" not in group.columns:
        return group
    counts = group.groupby("batch_per_device")["slices"].nunique()
    chosen: pd.DataFrame = group[group["batch_per_device"] == counts[counts == counts.max()].index.max()]
    return chosen


def _of_strategy(group: pd.DataFrame) -> list[dict[str, object]]:
    ordered = group.sort_values("slices").drop_duplicates("slices", keep="last")
    first = ordered.iloc[0]
    rows: list[dict[str, object]] = []
    for _, row in ordered.iterrows():
        total = float(row["tflops_per_chip"]) * float(row["chips"])
        linear = float(first["tflops_per_chip"]) * float(row["chips"])
        rows.append(
            {
                "strategy": row["strategy"],
                "slices": int(row["slices"]),
                "total_tflops": total,
                "linear_tflops": linear,
                "efficiency": total / linear,
            }
        )
    return rows
