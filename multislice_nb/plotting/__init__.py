"""Figures of what was measured and of what the formulas say. Each has its data in `.table`.

Figures are made without pyplot: no backend is chosen, nothing is shown twice, and a notebook shows what a cell
returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from multislice_nb._lazy import lazily

if TYPE_CHECKING:
    from multislice_nb.plotting.bars import breakdown, memory, traffic
    from multislice_nb.plotting.figure import Chart
    from multislice_nb.plotting.forecast import predicted
    from multislice_nb.plotting.roofs import roofline
    from multislice_nb.plotting.scaling import weak_scaling
    from multislice_nb.plotting.thresholds import intensity, plot_intensity
    from multislice_nb.plotting.throughput import tflops

__all__ = [
    "Chart",
    "breakdown",
    "intensity",
    "memory",
    "plot_intensity",
    "predicted",
    "roofline",
    "tflops",
    "traffic",
    "weak_scaling",
]

# Late, so that matplotlib and pandas come with the first figure.
_HOMES = {
    "Chart": "figure",
    "breakdown": "bars",
    "intensity": "thresholds",
    "memory": "bars",
    "plot_intensity": "thresholds",
    "predicted": "forecast",
    "roofline": "roofs",
    "tflops": "throughput",
    "traffic": "bars",
    "weak_scaling": "scaling",
}

__getattr__, __dir__ = lazily(__name__, _HOMES)
