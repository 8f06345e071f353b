"""A figure that a notebook shows whichever backend is set, and that carries its data."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from multislice_nb.plotting.style import Theme, ThemeName, theme

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["Chart", "new_chart", "new_charts"]

_DPI = 110
_SCALE = 2  # pixels drawn for each shown, for screens with fine pixels


class Chart(Figure):
    """A matplotlib figure with the data it shows in `table`.

    Attributes:
        table: One row for each point or line that is drawn.
    """

    table: pd.DataFrame

    def _repr_png_(self) -> tuple[bytes, dict[str, Any]]:
        canvas = FigureCanvasAgg(self)
        sheet = io.BytesIO()
        canvas.print_figure(
            sheet, format="png", dpi=_DPI * _SCALE, bbox_inches="tight", facecolor=self.get_facecolor()
        )
        data = sheet.getvalue()
        # A PNG's own header: width and height at bytes 16 to 24.
        width, height = (int.from_bytes(data[at : at + 4], "big") // _SCALE for at in (16, 20))
        return data, {"width": width, "height": height}


def new_chart(
    table: pd.DataFrame, name: ThemeName, *, size: tuple[float, float]
) -> tuple[Chart, Axes, Theme]:
    """An empty chart with one pair of axes.

    Args:
        table: The data it will show.
        name: The theme.
        size: Width and height in inches.
    """
    chart, panels, colours = new_charts(table, name, columns=1, size=size)
    return chart, panels[0], colours


def new_charts(
    table: pd.DataFrame,
    name: ThemeName,
    *,
    columns: int,
    size: tuple[float, float],
    rows: int = 1,
    sharey: bool = False,
) -> tuple[Chart, list[Axes], Theme]:
    """An empty chart with several pairs of axes, row by row.

    Args:
        table: The data it will show.
        name: The theme.
        columns: Panels side by side.
        size: Width and height of the whole in inches.
        rows: Panels one above the other.
        sharey: Whether all have the same vertical axis.
    """
    colours = theme(name)
    chart = Chart(figsize=size, dpi=_DPI, facecolor=colours.paper, layout="constrained")
    chart.table = table
    FigureCanvasAgg(chart)
    panels = chart.subplots(rows, columns, squeeze=False, sharex=rows * columns > 1 and sharey, sharey=sharey)
    return chart, list(panels.flat), colours
