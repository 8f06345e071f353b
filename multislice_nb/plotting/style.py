"""How figures look: colours that differ in hue and in lightness, a marker and a line style for each series."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from multislice_nb._texts import grouped
from multislice_nb.errors import InvalidRequestError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

__all__ = ["Theme", "ThemeName", "dress", "head", "numbered", "series_style", "theme", "write"]

ThemeName = Literal["light", "dark"]

# Okabe and Ito's palette, which people with any colour vision can tell apart, ordered so that neighbours also
# differ in grey.
_LIGHT = ("#0072B2", "#E69F00", "#8C2D04", "#009E73", "#CC79A7", "#56B4E9")
_DARK = ("#56B4E9", "#F0E442", "#D55E00", "#2FD3A2", "#E7A6CB", "#FFFFFF")
_LETTERS_PER_INCH = 12  # of the legend's font
_LETTERS_PER_HANDLE = 9  # the line before a label, and the space after it
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_LINES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours of a figure's paper, ink, grid and series."""

    paper: str
    ink: str
    faint: str
    grid: str
    series: tuple[str, ...]


_THEMES = {
    "light": Theme(paper="#ffffff", ink="#1f2328", faint="#59636e", grid="#d8dee4", series=_LIGHT),
    "dark": Theme(paper="#16191d", ink="#e6edf3", faint="#9aa4ae", grid="#343b43", series=_DARK),
}


def theme(name: ThemeName) -> Theme:
    """A theme by name.

    Raises:
        InvalidRequestError: If it is neither `light` nor `dark`.
    """
    if name not in _THEMES:
        raise InvalidRequestError(f"{name!r} is not a theme.", fix=f"Choose {' or '.join(_THEMES)}.")
    return _THEMES[name]


def series_style(colours: Theme, number: int) -> dict[str, Any]:
    """Line options of the series with that number: colour, marker and line style all differ."""
    return {
        "color": colours.series[number % len(colours.series)],
        "marker": _MARKERS[number % len(_MARKERS)],
        "linestyle": _LINES[number % len(_LINES)],
        "linewidth": 1.8,
        "markersize": 6.5,
        "markeredgecolor": colours.paper,
        "markeredgewidth": 0.8,
    }


def dress(axes: Axes, colours: Theme, *, x: str, y: str) -> None:
    """Label axes and give them a theme's colours.

    Args:
        axes: What to dress.
        colours: The theme.
        x: Label of the horizontal axis, with its unit.
        y: Label of the vertical axis, with its unit.
    """
    axes.set_facecolor(colours.paper)
    axes.set_xlabel(x, fontsize=11, color=colours.ink)
    axes.set_ylabel(y, fontsize=11, color=colours.ink)
    axes.tick_params(colors=colours.ink, labelsize=10, which="both")
    axes.grid(visible=True, which="major", color=colours.grid, linewidth=0.7)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in {"left", "bottom"})
        spine.set_color(colours.faint)


def head(
    chart: Figure,
    colours: Theme,
    *,
    title: str,
    note: str = "",
    legend: bool = True,
    columns: int | None = None,
) -> None:
    """Put a title, a note and a legend above everything; one legend for all panels, as wide as its labels need.

    Args:
        chart: The figure; it gets higher by what is put above it.
        colours: The theme.
        title: What is shown.
        note: How it came about, in one line.
        legend: Whether there is one.
        columns: Entries of the legend side by side; as many as there is room for when left out.
    """
    entries: dict[str, Any] = {}
    for axes in chart.axes if legend else ():
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    longest = max(map(len, entries), default=1)
    room = chart.get_figwidth() * _LETTERS_PER_INCH / (longest + _LETTERS_PER_HANDLE)
    columns = columns or max(1, min(4, int(room)))
    lines = [line for line in (title, note) if line]
    rows = -(-len(entries) // columns)
    height = float(chart.get_figheight()) + 0.25 * (len(lines) + rows)
    chart.set_figheight(height)
    up = 0.08
    for text, size, colour in ((title, 12.5, colours.ink), (note, 9.5, colours.faint)):
        if text:
            chart.text(0.01, 1 - up / height, text, fontsize=size, color=colour, va="top")
            up += 0.25
    if entries:
        chart.legend(
            entries.values(),
            entries.keys(),
            frameon=False,
            fontsize=10,
            loc="upper left",
            bbox_to_anchor=(0.0, 1 - up / height),
            borderaxespad=0,
            ncols=columns,
            handlelength=3.0,
            labelcolor=colours.ink,
        )
        up += 0.27 * rows
    chart.set_layout_engine("constrained", rect=(0, 0, 1, 1 - up / height))


def numbered(axis: Axis) -> None:
    """Have an axis name its numbers as texts do: `0.5`, `20 000`."""
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: grouped(value) if value >= 10 else f"{value:g}"))


def write(
    axes: Axes,
    colours: Theme,
    text: str,
    at: tuple[float, float],
    *,
    off: tuple[float, float],
    size: float = 10,
    **options: Any,
) -> None:
    """Write beside a point, readable over lines.

    Args:
        axes: Where.
        colours: The theme.
        text: What to write.
        at: The point, in data coordinates unless `xycoords` says otherwise.
        off: How far from it, in points to the right and up.
        size: Of the letters, in points.
        **options: matplotlib's, of how the text is aligned.
    """
    from matplotlib import patheffects

    axes.annotate(
        text,
        at,
        xytext=off,
        textcoords="offset points",
        fontsize=size,
        color=colours.ink,
        path_effects=[patheffects.withStroke(linewidth=3, foreground=colours.paper)],
        **options,
    )
