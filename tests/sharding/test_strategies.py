from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multislice_nb import tpu
from multislice_nb.errors import InvalidRequestError, ParallelismError
from multislice_nb.sharding import (
    Parallelism,
    Pipeline,
    advise,
    check_dcn,
    enumerate_strategies,
    fsdp_intensity,
    most_tensor_ways,
    parse_strategy,
    pipeline_intensity,
    pipelines,
    smallest_fsdp_batch,
    tensor_intensity,
)

small = [
    name
    for kind in tpu.GENERATIONS
    for name in tpu.accelerator_types(kind)
    if tpu.AcceleratorType.parse(name).chips <= 64
]


@given(st.sampled_from(small), st.integers(1, 8))
def test_every_strategy_fits_and_none_is_named_twice(name: str, slices: int) -> None:
    """Each enumerated strategy has both products right, appears once, and is read back by its name."""
    devices = tpu.AcceleratorType.parse(name).device_count
    found = enumerate_strategies(name, slices)
    assert len(set(found)) == len(found) == triples(devices) * triples(slices)
    for one in found:
        assert one.resolve(devices, slices) == one
        if math.prod(one.ici) > 1 and math.prod(one.dcn) > 1:
            assert parse_strategy(one.name, devices, slices) == one


def triples(number: int) -> int:
    """How many ordered triples of factors a number has."""
    return sum(
        number % first == 0 and number // first % second == 0
        for first in range(1, number + 1)
        if number % first == 0
        for second in range(1, number // first + 1)
    )


def test_the_overviews_examples_come_first() -> None:
    """For two v4-16, FSDP inside and data between comes first, and what is advised has no warning at all."""
    assert enumerate_strategies("v4-16", 2)[0] == Parallelism(ici_fsdp=8, dcn_data=2)
    assert enumerate_strategies("v4-8")[:3] == (
        Parallelism(ici_fsdp=4),
        Parallelism(ici_fsdp=2, ici_tensor=2),
        Parallelism(ici_tensor=4),
    )
    assert all(not advise(one) for one in enumerate_strategies("v4-16", 4, advised=True))


def test_the_overviews_advice_has_reasons() -> None:
    """Tensor over DCN is advised against always, ICI data rarely used, and FSDP over DCN depends; each says why."""
    found = advise(Parallelism(ici_data=2, ici_fsdp=4, dcn_fsdp=2, dcn_tensor=2))
    assert [(one.level, one.about) for one in found] == [
        ("never", "dcn_tensor"),
        ("rarely", "ici_data"),
        ("it depends", "dcn_fsdp"),
    ]
    assert all(len(one.reason) > 40 for one in found)
    assert advise(Parallelism(ici_fsdp=8, dcn_data=2)) == ()


def test_sizes_that_do_not_divide_are_left_out() -> None:
    """Strategies whose axes do not divide the model's sizes are not offered."""
    found = enumerate_strategies("v4-16", splits={"tensor": (6,)})
    assert {one.ici_tensor for one in found} == {1, 2}


@given(st.integers(1, 256))
def test_the_ladder_of_pipelines(slices: int) -> None:
    """Depths double from 2, replicas halve, products hold and the bubble stays under a fifth."""
    found = pipelines(slices)
    assert [one.depth for one in found] == [2**step for step in range(1, 9) if slices % 2**step == 0]
    assert all(one.slices == slices and 0 < one.bubble < 0.2 for one in found)


def test_a_pipelines_numbers() -> None:
    """The bubble is (depth-1)/(microbatches+depth-1), and slices of a pipeline share its batch."""
    found = Pipeline(depth=4, replicas=2, microbatches=12)
    assert found.bubble == 3 / 15
    assert found.tokens_per_pipeline(1000) == 500
    assert found.name == "pipelines of depth 4 + 2-way data over DCN"
    with pytest.raises(ParallelismError, match="depth cannot be 0"):
        Pipeline(depth=0)


def test_the_scaling_books_numbers() -> None:
    """FSDP over one axis of v5p needs about 2550 tokens a chip, and tensor ways about F/2550 (scaling book)."""
    assert smallest_fsdp_batch("v5p", 10**9) == pytest.approx(2550, rel=0.001)
    assert most_tensor_ways("v5p", 2550 * 8) == 9
    assert fsdp_intensity(2550, 10**9) == pytest.approx(459e12 / (2 * 90e9 * 8), rel=0.001)


@given(st.integers(64, 65536), st.sampled_from(["v4", "v5e", "v5p", "v6e"]))
def test_the_most_tensor_ways_are_fed_and_one_more_is_not(feedforward: int, generation: str) -> None:
    """At the most tensor ways ICI keeps up, and with one more it does not."""
    ways = most_tensor_ways(generation, feedforward)
    kind = tpu.generation(generation)
    needed = kind.bf16_flops_per_chip / (2 * kind.ici_bytes_per_second_per_link * 8)
    assert ways == 1 or tensor_intensity(feedforward, ways) >= needed * (1 - 1e-6)
    assert tensor_intensity(feedforward, ways + 1) < needed


def test_other_models_are_checked_by_time_or_flops() -> None:
    """A Transformer's smallest batch just hides the all-reduce; measured time and counted FLOPs agree."""
    counted = check_dcn("v4-16", 2, parameters=1e9, backward_flops=4 * 1e9 * 176_000)
    assert counted.ratio == pytest.approx(1)
    timed = check_dcn("v4-16", 2, parameters=1e9, backward_seconds=counted.backward_seconds * 2)
    assert timed.hides
    assert timed.hides_with_margin
    assert "hidden with margin" in str(timed)
    with pytest.raises(InvalidRequestError, match="by its time or by its FLOPs"):
        check_dcn("v4-16", 2, parameters=1e9)


def test_no_neighbours_no_traffic() -> None:
    """One chip, one way and one stage send nothing."""
    assert fsdp_intensity(8, 1) == tensor_intensity(8, 1) == pipeline_intensity(1e9, 1, 8) == math.inf
    with pytest.raises(InvalidRequestError):
        tensor_intensity(0, 2)
