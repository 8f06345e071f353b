from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from multislice_nb import plotting
from multislice_nb.errors import InvalidRequestError
from multislice_nb.plotting import Chart


@pytest.fixture
def frame() -> pd.DataFrame:
    """Three strategies at four batch sizes on two slices, one of them out of memory at the largest."""
    rows = []
    for strategy, factor in (("fsdp", 1.0), ("tensor", 0.8), ("fsdp+tensor", 0.7)):
        for batch in (64, 128, 256, 512):
            failed = strategy == "tensor" and batch == 512
            value = None if failed else 0.03 * factor * batch / (batch + 128)
            rows.append(
                {
                    "strategy": strategy,
                    "batch_per_device": batch,
                    "tflops_per_chip": value,
                    "tflops_low": None if value is None else value * 0.95,
                    "tflops_high": None if value is None else value * 1.05,
                    "status": "oom" if failed else "ok",
                    "device_kind": "cpu",
                    "generation": "v4",
                    "accelerator_type": "v4-16",
                    "slices": 2,
                    "steps": 10,
                    "tokens_per_slice": batch * 8,
                    "operational_intensity": float(batch),
                }
            )
    return pd.DataFrame(rows)


def words(chart: Figure) -> str:
    """All text of a figure."""
    from matplotlib.text import Text

    return "\n".join(text.get_text() for text in chart.findobj(Text))


def test_a_line_per_strategy_with_its_own_look(frame: pd.DataFrame) -> None:
    """Each strategy is a line at its measured values, told apart by colour, marker and line style alike."""
    chart = plotting.tflops(frame)
    lines = {str(line.get_label()): line for line in chart.axes[0].get_lines()}
    looks = set()
    for strategy in ("fsdp", "tensor", "fsdp+tensor"):
        ok = frame[(frame["strategy"] == strategy) & (frame["status"] == "ok")]
        line = lines[strategy]
        assert list(np.asarray(line.get_xdata())) == list(ok["batch_per_device"])
        assert np.asarray(line.get_ydata()) == pytest.approx(ok["tflops_per_chip"].to_numpy() * 1e3)
        looks |= {line.get_color(), line.get_marker(), line.get_linestyle()}
    assert len(looks) >= 8  # matplotlib calls both dash patterns "--"
    assert len(chart.axes[0].collections) == 3


def test_what_differs_in_more_than_strategy_is_a_line_of_its_own(frame: pd.DataFrame) -> None:
    """Rows of two models, of two ways of training and of two counts of slices in one file are never one zigzag line."""
    wide = frame.assign(embedding=128)
    for column, value, label in (
        ("embedding", 256, "embedding 256"),
        ("remat", True, "remat"),
        ("slices", 1, "1 slice"),
        ("accelerator_type", "v4-8", "v4-8"),
        ("device_kind", "TPU v4", "TPU v4"),
    ):
        known = wide.assign(remat=False)
        chart = plotting.tflops(pd.concat([known, known.assign(**{column: value})], ignore_index=True))
        told = chart.table.groupby(["strategy", "batch_per_device"]).size()
        assert (told == 1).all()
        assert len(told) == 2 * len(frame)
        assert f"fsdp, {label}" in set(chart.table["strategy"])


def test_of_two_timings_the_longer_is_drawn(frame: pd.DataFrame) -> None:
    """A configuration timed with 10 and with 100 steps is one point, that of 100 steps, unless these failed."""
    longer = frame.assign(steps=100, tflops_per_chip=frame["tflops_per_chip"] * 1.1)
    both = pd.concat([longer, frame], ignore_index=True)
    assert set(plotting.tflops(both).table["steps"]) == {100}
    failed = longer.assign(status="lost", tflops_per_chip=None)
    drawn = plotting.tflops(pd.concat([failed, frame], ignore_index=True)).table
    assert set(drawn[drawn["tflops_per_chip"].notna()]["steps"]) == {10}


def test_units_are_said(frame: pd.DataFrame) -> None:
    """Axes name their units, and small numbers get a unit in which they are read easily."""
    assert "GFLOP/s per chip" in words(plotting.tflops(frame))
    assert "Batch per device (examples)" in words(plotting.tflops(frame))
    large = frame.assign(tflops_per_chip=frame["tflops_per_chip"] * 1e4)
    assert chart_y(plotting.tflops(large)) == "TFLOP/s per chip"
    assert "FLOPs per bit" in words(plotting.plot_intensity("v4"))


def chart_y(chart: Figure) -> str:
    """The label of a figure's first vertical axis."""
    return str(chart.axes[0].get_ylabel())


def test_out_of_memory_is_named(frame: pd.DataFrame) -> None:
    """A configuration that ran out of memory is named in the figure and has no point on its line."""
    assert "tensor: out of memory" in words(plotting.tflops(frame))


def test_the_peak_is_that_of_the_device_measured(frame: pd.DataFrame) -> None:
    """A CPU has no peak line, a TPU has its own, and a given one is used."""
    assert "peak" not in words(plotting.tflops(frame))
    on_tpu = frame.assign(
        device_kind="TPU v4",
        tflops_per_chip=frame["tflops_per_chip"] * 9e3,
        tflops_low=frame["tflops_low"] * 9e3,
        tflops_high=frame["tflops_high"] * 9e3,
    )
    assert "peak 275 TFLOP/s" in words(plotting.tflops(on_tpu))
    assert "peak 459 TFLOP/s" in words(plotting.tflops(on_tpu.assign(device_kind="TPU v5p")))
    assert "peak 459 TFLOP/s" in words(plotting.tflops(on_tpu, peak="v5p"))
    assert "peak 100 TFLOP/s" in words(plotting.tflops(on_tpu, peak=100e12))


def test_crossings_are_the_overviews_batches() -> None:
    """The v4 threshold and the batches at which two and more slices reach it are drawn and tabulated."""
    chart = plotting.plot_intensity("v4", slices=[2, 4])
    said = words(chart)
    assert "v4: 22 000 FLOPs/bit" in said
    assert "176 k tokens" in said
    assert "352 k tokens" in said
    assert list(chart.table["smallest_tokens_per_slice"]) == [176_000, 352_000]
    crossings = [
        (float(np.asarray(line.get_xdata())[0]), float(np.asarray(line.get_ydata())[0]))
        for line in chart.axes[0].get_lines()
        if len(np.asarray(line.get_xdata())) == 1
    ]
    assert (176_000, 22_000) in crossings
    assert (352_000, 22_000) in crossings


def test_measurements_lie_on_the_lines(frame: pd.DataFrame) -> None:
    """Measured configurations are marked, and what has no DCN traffic is refused with the reason."""
    chart = plotting.intensity(frame)
    marks = next(line for line in chart.axes[0].get_lines() if line.get_label() == "measured")
    assert len(np.asarray(marks.get_xdata())) == 11
    with pytest.raises(InvalidRequestError, match="traffic between slices"):
        plotting.intensity(frame.assign(operational_intensity=None))
    with pytest.raises(InvalidRequestError, match="no traffic"):
        plotting.plot_intensity("v4", slices=[1])


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_notebook_gets_a_png_of_known_size(frame: pd.DataFrame, theme: str) -> None:
    """A figure shows itself as a PNG with its size, whichever backend is set, in either theme."""
    chart = plotting.tflops(frame, theme=theme)  # type: ignore[arg-type]  # pytest's parameter is any text
    data, size = chart._repr_png_()
    assert data.startswith(b"\x89PNG")
    assert size["width"] > 500
    assert isinstance(chart, Figure)
    assert isinstance(chart, Chart)
    assert len(chart.table) == len(frame)


def test_nonsense_is_refused(frame: pd.DataFrame) -> None:
    """A frame without rows or columns, and a theme that is none, are refused."""
    with pytest.raises(InvalidRequestError, match="no rows"):
        plotting.tflops(frame.iloc[:0])
    with pytest.raises(InvalidRequestError, match="no column strategy"):
        plotting.tflops(frame.drop(columns="strategy"))
    with pytest.raises(InvalidRequestError, match="is not a theme"):
        plotting.tflops(frame, theme="pink")  # type: ignore[arg-type]  # the point of the test


def test_no_pyplot_and_nothing_early() -> None:
    """Drawing a figure leaves pyplot alone, and importing the package leaves matplotlib and pandas alone."""
    program = (
        "import sys; from multislice_nb import plotting\n"
        "assert not {'matplotlib', 'pandas', 'jax'} & set(sys.modules)\n"
        "plotting.plot_intensity('v4')._repr_png_()\n"
        "assert 'matplotlib.pyplot' not in sys.modules and 'jax' not in sys.modules\n"
        "assert callable(plotting.intensity) and callable(plotting.tflops)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
