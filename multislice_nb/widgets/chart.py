"""A chart of any two columns of results."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from multislice_nb.errors import ExperimentError
from multislice_nb.plotting.figure import Chart, new_chart
from multislice_nb.plotting.style import ThemeName, dress, head, series_style

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["explore"]

_LABELS = {
    "batch_per_device": "Batch per device (rows)",
    "tokens_per_slice": "Tokens per slice",
    "embedding": "Embedding",
    "layers": "Layers",
    "parameters": "Parameters",
    "tflops_per_chip": "TFLOP/s per chip (median)",
    "step_seconds": "Step (s, median)",
    "operational_intensity": "FLOPs per DCN bit",
    "compile_seconds": "Compilation (s)",
    "spread": "Spread (half the interquartile range over the median)",
}


def explore(
    frames: Mapping[str, pd.DataFrame],
    *,
    x: str,
    y: str,
    colour: str,
    only: Sequence[str] = (),
    theme: ThemeName = "light",
) -> Chart:
    """Draw a line for each group of each file.

    Args:
        frames: Results by their file's name; with two, the second one's lines are hollow.
        x: Column of the horizontal axis.
        y: Column of the vertical axis.
        colour: Column that tells lines apart.
        only: Groups to draw; all when empty.
        theme: `light` or `dark`.

    Raises:
        ExperimentError: Nothing measured has both columns.
    """
    parts = {name: _points(frame, x, y, colour, only) for name, frame in frames.items()}
    table = pd.concat([part.assign(file=name) for name, part in parts.items()], ignore_index=True)
    if table.empty:
        raise ExperimentError(
            f"Nothing measured has {x}, {y} and {colour}.", fix="Choose other columns or groups."
        )
    chart, axes, colours = new_chart(table, theme, size=(7.2, 4.2))
    groups = list(dict.fromkeys(table[colour]))
    for number, (name, part) in enumerate(parts.items()):
        for group, rows in part.groupby(colour, sort=False):
            style = series_style(colours, groups.index(group))
            if number:
                style |= {"markerfacecolor": colours.paper, "markeredgecolor": style["color"], "alpha": 0.75}
            label = f"{group} · {name}" if len(parts) > 1 else str(group)
            middle = rows.groupby(x)[y].median()
            axes.plot(middle.index, middle.to_numpy(), label=label, **style)
    if table[x].max() >= 4 * max(table[x].min(), 1e-12):
        axes.set_xscale("log", base=2)
    ticks = sorted(table[x].unique())
    if len(ticks) <= 12:
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
    axes.set_ylim(bottom=0)
    dress(axes, colours, x=_LABELS.get(x, x), y=_LABELS.get(y, y))
    head(chart, colours, title=" and ".join(frames))
    return chart


def _points(frame: pd.DataFrame, x: str, y: str, colour: str, only: Sequence[str]) -> pd.DataFrame:
    if not {x, y, colour} <= set(frame.columns):
        return pd.DataFrame(columns=[x, y, colour])
    rows = frame[[x, y, colour]].dropna()
    rows = rows.assign(**{colour: rows[colour].astype(str)})
    return rows[rows[colour].isin(only)] if only else rows
