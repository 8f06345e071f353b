from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multislice_nb import sharding, tpu
from multislice_nb.errors import AcceleratorTypeError, InvalidRequestError

slice_counts = st.integers(min_value=2, max_value=256)
batches = st.floats(min_value=1, max_value=1e9)
generations = st.sampled_from([kind.name for kind in tpu.GENERATIONS])


def test_the_overviews_numbers() -> None:
    """Every number that the Multislice overview gives for v4 comes out of the public functions."""
    assert sharding.arithmetic_intensity("v4") == 22_000.0
    assert sharding.operational_intensity(1, slices=2) == 4 / 32
    assert sharding.operational_intensity(1, slices=4) == 4 / 64
    assert sharding.operational_intensity(350_000, slices=2) == 43_750.0
    assert sharding.smallest_batch("v4", slices=2) == 176_000.0
    assert sharding.smallest_batch("v4", slices=4) == 352_000.0
    assert sharding.advised_batch("v4", slices=2) == pytest.approx(350_000)
    assert sharding.advised_batch("v4", slices=4) == pytest.approx(700_000)
    assert sharding.dcn_bits_per_parameter(2) == sharding.dcn_bits_per_parameter(2, exact=True) == 32
    assert sharding.dcn_bits_per_parameter(4) == 64
    assert sharding.dcn_bits_per_parameter(4, exact=True) == 48


def test_four_slices_of_v4_16_are_32_devices() -> None:
    """Four slices of v4-16 have 32 JAX devices."""
    found = tpu.AcceleratorType.parse("v4-16")
    parallelism = sharding.parse_strategy("fsdp", found.device_count, 4)
    assert 4 * found.device_count == parallelism.device_count == 32


@given(slice_counts)
def test_the_ring_lies_between_the_bounds(slices: int) -> None:
    """The ring's exact traffic lies between 32 and 64 bits and never exceeds the documented bound."""
    exact = sharding.dcn_bits_per_parameter(slices, exact=True)
    assert 32 <= exact < 64
    assert exact <= sharding.dcn_bits_per_parameter(slices)
    assert exact < sharding.dcn_bits_per_parameter(slices + 1, exact=True)


@given(batches, batches, slice_counts, st.booleans())
def test_intensity_is_monotone_in_batch(first: float, second: float, slices: int, exact: bool) -> None:
    """A larger batch never has a lower operational intensity."""
    low, high = sorted((first, second))
    assert sharding.operational_intensity(low, slices, exact=exact) <= sharding.operational_intensity(
        high, slices, exact=exact
    )


@given(generations, slice_counts, st.booleans(), st.sampled_from([16.0, 32.0]), st.sampled_from([None, 16.0]))
def test_the_smallest_batch_meets_the_hardware(
    generation: str, slices: int, exact: bool, bits: float, parameter: float | None
) -> None:
    """At the smallest batch, operational intensity equals arithmetic intensity, with FSDP over DCN too."""
    widths = {"exact": exact, "gradient_bits": bits, "parameter_bits": parameter}
    batch = sharding.smallest_batch(generation, slices, **widths)  # type: ignore[arg-type]  # each has its own type
    reached = sharding.operational_intensity(batch, slices, **widths)  # type: ignore[arg-type]
    assert reached == pytest.approx(sharding.arithmetic_intensity(generation))


@given(generations, st.floats(min_value=1, max_value=1e9), st.booleans(), st.booleans())
def test_the_most_slices_are_fed_and_one_more_is_not(
    generation: str, tokens: float, margin: bool, exact: bool
) -> None:
    """The batch feeds the slices that are named, and any more would fall below the smallest batch."""
    needed = sharding.advised_batch if margin else sharding.smallest_batch
    slices = sharding.slices_for_batch(generation, tokens, margin=margin, exact=exact)
    assert slices == 1 or tokens / slices >= needed(generation, slices, exact=exact)
    assert slices == 256 or tokens / (slices + 1) < needed(generation, slices + 1, exact=exact)


def test_one_slice_sends_nothing() -> None:
    """One slice has no DCN traffic: its intensity is infinite and any batch will do."""
    assert sharding.operational_intensity(1000, slices=1) == math.inf
    assert sharding.smallest_batch("v4", slices=1) == 0


def test_intensity_against_each_network() -> None:
    """Intensities against ICI, one link and HBM follow from the published bandwidths."""
    assert sharding.arithmetic_intensity("v4", "hbm") == 275e12 / (1200e9 * 8)
    assert sharding.arithmetic_intensity("v4", "ici link") == 275e12 / (45e9 * 8)
    assert sharding.arithmetic_intensity("v4", "ici") == 275e12 / (270e9 * 8)
    assert sharding.arithmetic_intensity("v5e") == 7880.0


def test_numbers_of_your_own_are_used() -> None:
    """An overridden bandwidth changes the threshold in proportion."""
    fast = tpu.generation("v4").override(dcn_bits_per_second_per_host=100e9)
    assert sharding.arithmetic_intensity(fast) == 11_000.0
    assert sharding.smallest_batch(fast) == 88_000.0


def test_nonsense_is_refused() -> None:
    """Unknown generations and networks, and numbers below zero, are refused."""
    with pytest.raises(AcceleratorTypeError):
        sharding.arithmetic_intensity("v9")
    with pytest.raises(InvalidRequestError, match="not a network"):
        sharding.arithmetic_intensity("v4", "wifi")  # type: ignore[arg-type]  # the point of the test
    with pytest.raises(InvalidRequestError):
        sharding.operational_intensity(-1)
    with pytest.raises(InvalidRequestError):
        sharding.dcn_bits_per_parameter(0)
