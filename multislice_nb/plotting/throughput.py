"""TFLOP/s per chip against batch size, a line for each strategy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pandas as pd

from multislice_nb import tpu
from multislice_nb._texts import grouped
from multislice_nb.errors import InvalidRequestError
from multislice_nb.plotting.apart import told_apart
from multislice_nb.plotting.figure import Chart, new_chart, new_charts
from multislice_nb.plotting.style import ThemeName, dress, head, series_style, write

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.axes import Axes
    from matplotlib.transforms import Transform

    from multislice_nb.plotting.style import Theme

__all__ = ["batch_axis", "tflops"]

_TOGETHER = 6  # strategies in one panel; more get a panel each
_NEEDED = ("strategy", "batch_per_device", "tflops_per_chip")


def tflops(
    frame: pd.DataFrame,
    *,
    peak: float | str | tpu.Generation | None = None,
    title: str | None = None,
    batch_of: str = "examples",
    theme: ThemeName = "light",
) -> Chart:
    """TFLOP/s per chip against batch size per device, with the spread as a band.

    Rows that differ in more than strategy and batch, such as in the model or in the number of slices, are lines of
    their own, which say in what.

    Args:
        frame: Rows of measurements: `strategy`, `batch_per_device`, `tflops_per_chip` (median), and where there
            are any `tflops_low` and `tflops_high` (quartiles), `status` (other than `ok` for what was not
            measured), `device_kind`, `slices`, `accelerator_type`.
        peak: Peak FLOP/s of a chip, or a generation to take it from, drawn as a line with a second axis of
            utilisation. By default the peak of the device kind that was measured; none for a CPU, as on the
            emulator.
        title: Instead of one made from the columns.
        batch_of: What the batch counts: examples, or tokens.
        theme: `light` or `dark`.

    Returns:
        A figure; `table` is the rows that it shows.

    Raises:
        InvalidRequestError: If there are no rows, or a column is missing.
    """
    rows = _checked(frame)
    limit = _peak(rows, peak)
    strategies = list(dict.fromkeys(rows["strategy"]))
    heading = title if title is not None else _title(rows)
    if len(strategies) > _TOGETHER:
        return _panels(rows, strategies, limit, heading, theme, batch_of)
    chart, axes, colours = new_chart(rows, theme, size=(7.4, 4.6))
    measured = rows[rows["tflops_per_chip"].notna()]
    scale, unit = _unit(float(measured["tflops_per_chip"].max()) if len(measured) else 0.0)
    for number, strategy in enumerate(strategies):
        _line(
            axes, measured[measured["strategy"] == strategy], strategy, scale, series_style(colours, number)
        )
    batch_axis(axes, sorted(rows["batch_per_device"].unique()))
    axes.set_ylim(bottom=0)
    _out_of_memory(axes, rows, strategies, colours)
    if limit:
        _peak_line(axes, limit / 1e12 * scale, unit, colours)
    dress(axes, colours, x=f"Batch per device ({batch_of})", y=f"{unit} per chip")
    head(chart, colours, title=heading, note=_note(rows))
    return chart


def _panels(
    rows: pd.DataFrame,
    strategies: list[str],
    limit: float | None,
    heading: str,
    theme: ThemeName,
    batch_of: str,
) -> Chart:
    """A small panel for each strategy, with the others faint behind it, where one figure would be a tangle."""
    columns = 3 if len(strategies) <= 9 else 4
    lines = -(-len(strategies) // columns)
    chart, panels, colours = new_charts(
        rows, theme, columns=columns, rows=lines, size=(2.5 * columns, 2.1 * lines), sharey=True
    )
    measured = rows[rows["tflops_per_chip"].notna()]
    scale, unit = _unit(float(measured["tflops_per_chip"].max()) if len(measured) else 0.0)
    for axes, strategy in zip(panels, strategies, strict=False):
        for other in strategies:
            part = measured[measured["strategy"] == other]
            axes.plot(
                part["batch_per_device"], part["tflops_per_chip"] * scale, color=colours.grid, linewidth=1
            )
        own = rows[rows["strategy"] == strategy]
        _line(axes, own[own["tflops_per_chip"].notna()], strategy, scale, series_style(colours, 0))
        _out_of_memory(axes, own.assign(strategy=""), [""], colours)
        if limit:
            axes.axhline(limit / 1e12 * scale, color=colours.ink, linewidth=1, linestyle=(0, (4, 2)))
        dress(axes, colours, x="", y="")
        axes.set_title(strategy, loc="left", fontsize=9.5, color=colours.ink)
    for axes in panels[len(strategies) :]:
        axes.set_visible(False)
    batches = sorted(rows["batch_per_device"].unique())
    batch_axis(panels[0], batches, most=4)
    for axes in panels:
        axes.tick_params(axis="x", labelrotation=30)
    panels[0].set_ylim(bottom=0)
    for text, place in (
        (f"Batch per device ({batch_of})", chart.supxlabel),
        (f"{unit} per chip", chart.supylabel),
    ):
        place(text, fontsize=11, color=colours.ink)
    peak = f" · dashed: peak {grouped(limit / 1e12 * scale)} {unit}" if limit else ""
    head(chart, colours, title=heading, note=f"{_note(rows)}{peak}", legend=False)
    return chart


def _checked(frame: pd.DataFrame) -> pd.DataFrame:
    missing = [name for name in _NEEDED if name not in frame.columns]
    if missing or frame.empty:
        raise InvalidRequestError(
            f"These results have {f'no column {missing[0]}' if missing else 'no rows'}.",
            fix="Give the frame of a sweep with at least one measurement.",
        )
    status = frame["status"] if "status" in frame.columns else pd.Series("ok", index=frame.index)
    return told_apart(frame.assign(status=status)).sort_values(["batch_per_device"], kind="stable")


def _peak(rows: pd.DataFrame, peak: float | str | tpu.Generation | None) -> float | None:
    """Peak FLOP/s of a chip: as given, or of the device that was measured."""
    if isinstance(peak, str | tpu.Generation):
        return tpu.generation(peak).bf16_flops_per_chip
    if peak is not None:
        return float(peak)
    kinds = set(rows["device_kind"].dropna()) if "device_kind" in rows.columns else set()
    found = {tpu.generation_of_device(kind) for kind in kinds}
    only = found.pop() if len(found) == 1 else None
    return only.bf16_flops_per_chip if only else None


def _unit(largest: float) -> tuple[float, str]:
    """A unit in which the numbers are read easily, and the factor that leads to it from TFLOP/s."""
    if largest >= 1 or largest == 0:
        return 1.0, "TFLOP/s"
    return (1e3, "GFLOP/s") if largest >= 1e-3 else (1e6, "MFLOP/s")


def _line(axes: Axes, rows: pd.DataFrame, label: str, scale: float, style: dict[str, Any]) -> None:
    axes.plot(rows["batch_per_device"], rows["tflops_per_chip"] * scale, label=label, **style)
    if {"tflops_low", "tflops_high"} <= set(rows.columns):
        axes.fill_between(
            rows["batch_per_device"],
            rows["tflops_low"].astype(float) * scale,
            rows["tflops_high"].astype(float) * scale,
            color=style["color"],
            alpha=0.16,
            linewidth=0,
        )


def _out_of_memory(axes: Axes, rows: pd.DataFrame, strategies: list[str], colours: Theme) -> None:
    """Name at the foot of the figure what ran out of memory, one above the other, each with its marker."""
    failed = rows[rows["status"] == "oom"]
    for batch in sorted(failed["batch_per_device"].unique()):
        group = failed[failed["batch_per_device"] == batch]
        for height, strategy in enumerate(dict.fromkeys(group["strategy"])):
            style = series_style(colours, strategies.index(strategy))
            text = f"{strategy}: out of memory".removeprefix(": ")
            off = (-9.0, 9.0 + 14 * height)
            write(axes, colours, text, (batch, 0), off=off, size=9, ha="right", va="center")
            axes.plot(
                [batch],
                [0.0],
                transform=axes.transData + _points_up(axes, off[1]),
                linestyle="none",
                marker=style["marker"],
                markersize=7.5,
                markerfacecolor=colours.paper,
                markeredgecolor=style["color"],
                markeredgewidth=1.8,
                clip_on=False,
                zorder=5,
            )


def _points_up(axes: Axes, points: float) -> Transform:
    from matplotlib.transforms import ScaledTranslation

    return ScaledTranslation(0, points / 72, axes.get_figure(root=True).dpi_scale_trans)  # type: ignore[union-attr]  # axes of ours have a figure


def batch_axis(axes: Axes, batches: Sequence[int], *, most: int = 9) -> None:
    """A logarithmic axis that names the batch sizes measured."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axes.set_xscale("log", base=2)
    shown = batches[:: math.ceil(len(batches) / most)]
    axes.xaxis.set_major_locator(FixedLocator([float(batch) for batch in shown]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: grouped(value)))
    axes.xaxis.set_minor_locator(NullLocator())


def _peak_line(axes: Axes, peak: float, unit: str, colours: Theme) -> None:
    axes.axhline(peak, color=colours.ink, linewidth=1.2, linestyle=(0, (4, 2)))
    text = f"peak {grouped(peak)} {unit}"
    write(axes, colours, text, (0, peak), off=(4, 4), size=9.5, xycoords=("axes fraction", "data"))
    axes.set_ylim(0, peak * 1.1)
    right = axes.secondary_yaxis("right", functions=(_times(100 / peak), _times(peak / 100)))
    right.set_ylabel("Utilisation (% of peak)", fontsize=11, color=colours.ink)
    right.tick_params(colors=colours.ink, labelsize=10)
    right.spines["right"].set_visible(False)


def _times(factor: float) -> Callable[[Any], Any]:
    return lambda values: values * factor


def _only(rows: pd.DataFrame, column: str) -> object | None:
    """The value of a column that is the same in all rows; None otherwise."""
    values = list(rows[column].dropna().unique()) if column in rows.columns else []
    return values[0] if len(values) == 1 else None


def _title(rows: pd.DataFrame) -> str:
    kind, slices = _only(rows, "accelerator_type"), _only(rows, "slices")
    where = f" on {slices} x {kind}" if kind is not None and slices is not None else ""
    return f"Throughput by sharding strategy{where}"


def _note(rows: pd.DataFrame) -> str:
    model = [
        f"{name} {value}" for name in ("embedding", "layers") if (value := _only(rows, name)) is not None
    ]
    device, steps = _only(rows, "device_kind"), _only(rows, "steps")
    median = f"median of {steps} steps" if steps is not None else "median"
    timing = f"{median}, band: quartiles" if "tflops_low" in rows.columns else ""
    parts = [", ".join(model), f"devices: {device}" if device is not None else "", timing]
    return " · ".join(part for part in parts if part)
