from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from multislice_nb import plotting, sharding, tpu
from multislice_nb.errors import InvalidRequestError
from multislice_nb.sharding import Model, Parallelism, Plan, Plans

MLP = Model.mlp()


def planned(parallelism: Parallelism, batch: int = 16384) -> Plan:
    """A plan with the numbers of the closed forms, for two v4-16."""
    moved = sharding.traffic(MLP, parallelism, batch)
    return Plan(
        title="mlp",
        accelerator_type="v4-16",
        topology="v4:2x2x2",
        slices=2,
        parallelism=parallelism,
        batch=batch,
        fits=True,
        hbm_bytes=sharding.memory_bytes(MLP, parallelism, batch),
        hbm_limit_bytes=30.75 * 2**30,
        flops=MLP.step_flops(batch),
        remat_flops=0.0,
        loop_flops=0.0,
        ici=moved.ici,
        dcn=moved.dcn_payload,
        bytes_accessed=sharding.hbm_bytes(MLP, parallelism, batch),
        compile_seconds=1.0,
        compiler="XLA for TPU",
        cached=False,
        prediction=sharding.predict(MLP, "v4-16", slices=2, batch_per_chip=batch, strategy=parallelism),
    )


@pytest.fixture
def plans() -> Plans:
    """Three strategies on two slices, side by side."""
    degrees = ((8, 1), (4, 2), (1, 8))
    return Plans(
        planned(Parallelism(ici_fsdp=fsdp, ici_tensor=tensor, dcn_data=2)) for fsdp, tensor in degrees
    )


def words(chart: plotting.Chart) -> str:
    """All text of a figure."""
    from matplotlib.text import Text

    return "\n".join(text.get_text() for text in chart.findobj(Text))


def test_the_roofs_ridges_are_the_arithmetic_intensities(plans: Plans) -> None:
    """Each roof bends at peak over bandwidth, and each plan is a point for each network it uses."""
    chart = plotting.roofline("v4", plans)
    ridges = chart.table[chart.table["what"] == "ridge"].set_index("roof")["flops_per_byte"]
    assert ridges["DCN"] == 8 * 22_000
    assert ridges["HBM"] == pytest.approx(275e12 / 1200e9)
    points = chart.table[chart.table["what"] == "plan"]
    assert len(points) == 9
    roofs = {str(line.get_label()): line for line in chart.axes[0].get_lines()}
    for name in ("HBM", "ICI", "DCN"):
        height = np.asarray(roofs[f"{name} roof"].get_ydata(), dtype=float)
        assert height.max() == pytest.approx(275)
        assert (np.diff(height) >= -1e-9).all()
    assert len(plotting.roofline("v6e").table) == 3


def test_the_parts_of_a_step_add_up(plans: Plans) -> None:
    """Bars of a step add up to its time, and names lose what all of them share."""
    chart = plotting.breakdown(plans)
    for row, plan in zip(chart.table.itertuples(index=False), plans, strict=True):
        assert plan.prediction is not None
        assert sum(row[1:]) == pytest.approx(plan.prediction.step_seconds)
    said = words(chart)
    assert "all with 2-way data over DCN" in said
    assert "8-way FSDP\n" in said
    assert "Time of a step (ms)" in said
    named = plotting.breakdown({"one": plans[0].prediction})  # type: ignore[dict-item]  # it has one
    assert list(named.table["strategy"]) == ["one"]
    with pytest.raises(InvalidRequestError, match="no step to show"):
        plotting.breakdown([])


def test_bytes_by_strategy_and_collective(plans: Plans) -> None:
    """The table and the bars hold each plan's bytes by network and kind."""
    chart = plotting.traffic(plans)
    table = chart.table.set_index(["strategy", "network", "kind"])["megabytes"]
    first = plans[0]
    assert table[(first.parallelism.name, "ICI", "all-gather")] == first.ici["all-gather"] / 1e6
    assert table[(first.parallelism.name, "DCN", "all-reduce")] == first.dcn["all-reduce"] / 1e6
    widths = sum(bar.get_width() for bar in chart.axes[0].patches)  # type: ignore[attr-defined]  # bars are rectangles
    assert widths == pytest.approx(sum(plan.ici_bytes for plan in plans) / 1e6)
    closed = sharding.traffic(MLP, first.parallelism, 16384)
    named = plotting.traffic({"one": closed}).table.set_index(["strategy", "network", "kind"])["megabytes"]
    assert named[("one", "DCN", "all-reduce")] == closed.dcn_payload["all-reduce"] / 1e6
    with pytest.raises(InvalidRequestError, match="moves anything"):
        plotting.traffic([])


def test_memory_is_shown_against_what_is_usable(plans: Plans) -> None:
    """Each plan's HBM is a bar of its state beside the usable HBM, and a bar far beyond it says its number."""
    first, second, third = plans
    chart = plotting.memory(
        [
            replace(first, hbm_bytes=10 * 2**30),
            replace(second, remat_flops=1.0, hbm_bytes=30 * 2**30),
            replace(third, fits=False, hbm_bytes=400 * 2**30),
        ]
    )
    assert list(chart.table["gib"]) == [10, 30, 400]
    assert list(chart.table["state"]) == ["fits", "fits, computing some of it twice", "out of memory"]
    said = words(chart)
    assert "400 GiB" in said
    assert "30.75 GiB that a program may use" in said
    assert chart.axes[0].get_xlim()[1] < 80
    batches = plotting.memory([replace(first, batch=batch) for batch in (1024, 2048)])
    assert "batch 1 024\n" in words(batches)
    assert "all with 8-way FSDP + 2-way data over DCN" in words(batches)
    guessed = plotting.memory([replace(first, fits=None), replace(second, hbm_bytes=None)])
    assert list(guessed.table["state"]) == ["by closed form"]
    with pytest.raises(InvalidRequestError, match="tells of memory"):
        plotting.memory([replace(first, hbm_bytes=None)])


def test_weak_scaling_is_told_against_linear() -> None:
    """Efficiency is the total over the smallest total scaled up, at the largest batch that all slice counts have."""
    rows = [
        {"strategy": "fsdp", "slices": n, "chips": 8 * n, "batch_per_device": batch, "tflops_per_chip": rate}
        for n, batch, rate in ((1, 64, 90.0), (1, 128, 100.0), (2, 128, 95.0), (4, 128, 80.0), (4, 256, 85.0))
    ]
    chart = plotting.weak_scaling(pd.DataFrame(rows))
    assert list(chart.table["efficiency"]) == pytest.approx([1, 0.95, 0.8])
    assert list(chart.table["total_tflops"]) == [800, 1520, 2560]
    assert "80% of linear" in words(chart)
    assert "Predicted" in words(plotting.weak_scaling(pd.DataFrame(rows), title="Predicted"))
    with pytest.raises(InvalidRequestError, match="one number of slices"):
        plotting.weak_scaling(pd.DataFrame(rows[:2]))
    mixed = pd.DataFrame(rows).iloc[[0, 2, 4]]  # 64, 128 and 256 on 1, 2 and 4 slices
    with pytest.raises(InvalidRequestError, match="one batch size on two numbers of slices"):
        plotting.weak_scaling(mixed)
    two = plotting.weak_scaling(pd.concat([mixed, mixed.iloc[2:].assign(slices=8, chips=64)])).table
    assert list(two["slices"]) == [4, 8]
    with pytest.raises(InvalidRequestError, match="no column chips"):
        plotting.weak_scaling(pd.DataFrame(rows).drop(columns="chips"))


def test_measured_and_predicted_together() -> None:
    """Each measurement has its prediction beside it, and measurements of a CPU are refused with the reason."""
    degrees = {f"{network}_{axis}": 1 for network in ("ici", "dcn") for axis in ("data", "fsdp", "tensor")}
    row = degrees | {
        "strategy": "fsdp",
        "workload": "mlp",
        "accelerator_type": "v4-8",
        "slices": 1,
        "embedding": 2048,
        "layers": 4,
        "ici_fsdp": 4,
        "device_kind": tpu.generation("v4").device_kinds[0],
    }
    frame = pd.DataFrame(
        [row | {"batch_per_device": size, "tflops_per_chip": 250.0} for size in (65536, 131072)]
    )
    chart = plotting.predicted(frame)
    expected = sharding.predict(MLP, "v4-8", batch_per_chip=131072).tflops_per_chip
    assert chart.table["predicted_tflops_per_chip"].iloc[1] == pytest.approx(expected)
    assert "Median distance" in words(chart)
    with pytest.raises(InvalidRequestError, match="measured on cpu"):
        plotting.predicted(frame.assign(device_kind="cpu"))


def test_many_strategies_get_a_panel_each() -> None:
    """More strategies than one panel holds are drawn as small multiples without a legend."""
    frame = pd.DataFrame(
        [
            {"strategy": f"s{number}", "batch_per_device": batch, "tflops_per_chip": number + batch / 64}
            for number in range(8)
            for batch in (64, 128)
        ]
    )
    chart = plotting.tflops(frame, peak=20e12)
    titles = [axes.get_title(loc="left") for axes in chart.axes if axes.get_visible()]
    assert titles == [f"s{number}" for number in range(8)]
    assert chart.legends == []
    assert "dashed: peak 20 TFLOP/s" in words(chart)
    assert len(chart.table) == 16
