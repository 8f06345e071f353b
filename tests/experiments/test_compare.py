"""Comparing results files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multislice_nb.errors import ExperimentError, InvalidRequestError
from multislice_nb.experiments import Results, compare
from multislice_nb.experiments.comparison import _corrected

if TYPE_CHECKING:
    from pathlib import Path


def written(path: Path, seconds: dict[tuple[str, int], Any], **more: Any) -> Results:
    """A results file with these step times."""
    results = Results(path)
    for (strategy, batch), times in seconds.items():
        row = {
            "key": f"{strategy} {batch} {len(times)}",
            "strategy": strategy,
            "ici_fsdp": strategy,
            "batch_per_device": batch,
            "status": "ok",
            "tokens_per_slice": 8,
            "slices": 2,
            "chips": 8,
            "step_seconds_all": list(times),
            "step_seconds": float(np.median(times)),
        }
        results.append(row | more)
    return results


def noisy(seed: int, mean: float, count: int = 20) -> list[float]:
    """Step times around a mean."""
    return [float(value) for value in np.random.default_rng(seed).normal(mean, 0.02, count)]


def test_a_real_change_is_seen_and_noise_is_not(tmp_path: Path) -> None:
    """Ten percent beyond two percent of noise is significant, the same mean is not, and each has its direction."""
    before = {("fsdp", 8): noisy(0, 1.0), ("fsdp", 16): noisy(1, 1.0), ("tensor", 8): noisy(2, 1.0)}
    after = {("fsdp", 8): noisy(3, 0.9), ("fsdp", 16): noisy(4, 1.0), ("tensor", 8): noisy(5, 1.1)}
    result = compare(written(tmp_path / "a", before), written(tmp_path / "b", after).path)
    assert [one.verdict for one in result.changes] == ["faster", "no difference seen", "slower"]
    assert result.changes[0].before == pytest.approx(2, rel=0.05)
    assert result.changes[0].ratio == pytest.approx(1 / 0.9, rel=0.05)
    assert "1 faster, 1 slower, 1 no difference seen" in str(result)
    assert list(result.frame["verdict"]) == [one.verdict for one in result.changes]
    assert "x1.1" in result._repr_html_()


def test_more_flops_are_not_faster(tmp_path: Path) -> None:
    """A step that computes more and takes longer for the same batch is slower, however many FLOP/s it has."""
    plain = written(tmp_path / "a", {("fsdp", 8): noisy(0, 1.0)}, remat=False, flops_per_device=6e12)
    again = written(tmp_path / "b", {("fsdp", 8): noisy(1, 1.2)}, remat=True, flops_per_device=8e12)
    (change,) = compare(plain, again, on=["ici_fsdp", "batch_per_device"]).changes
    assert change.verdict == "slower"
    assert change.ratio == pytest.approx(1 / 1.2, rel=0.02)
    assert "tokens/s a chip" in str(compare(plain, again, on=["ici_fsdp"]))


def test_few_steps_prove_nothing(tmp_path: Path) -> None:
    """Two steps each, however different, are not evidence."""
    before, after = {("fsdp", 8): [1.0, 1.1]}, {("fsdp", 8): [0.1, 0.2]}
    result = compare(written(tmp_path / "a", before), written(tmp_path / "b", after))
    assert not result.changes[0].significant


def test_what_only_one_file_has_is_named(tmp_path: Path) -> None:
    """Configurations without a partner are listed, and files without any in common are refused."""
    before, after = {("fsdp", 8): noisy(0, 1.0), ("fsdp", 16): noisy(0, 1.0)}, {("fsdp", 8): noisy(1, 1.0)}
    old, new = written(tmp_path / "a", before), written(tmp_path / "b", after)
    result = compare(old, new)
    assert result.only_before == ("fsdp batch 16",)
    assert result.only_after == ()
    assert "1 are in one file only" in result.summary
    other = written(tmp_path / "c", {("tensor", 8): noisy(0, 1.0)})
    with pytest.raises(ExperimentError, match="share no configuration"):
        compare(old, other)


def test_numbers_of_slices_compare_on_fewer_columns(tmp_path: Path) -> None:
    """Rows that differ in slices match when slices are left out, and ambiguous rows are refused."""
    two = written(tmp_path / "a", {("fsdp", 8): noisy(0, 1.0)}, slices=2)
    four = written(tmp_path / "b", {("fsdp", 8): noisy(1, 1.0)}, slices=4)
    with pytest.raises(ExperimentError):
        compare(two, four)
    assert len(compare(two, four, on=["ici_fsdp", "batch_per_device"]).changes) == 1
    emulated = written(tmp_path / "d", {("fsdp", 8): noisy(0, 1.0)}, slices=2, device_kind="cpu")
    with pytest.raises(ExperimentError):
        compare(two, emulated)
    both = written(tmp_path / "c", {("fsdp", 8): noisy(0, 1.0), ("fsdp", 16): noisy(0, 1.0)})
    with pytest.raises(InvalidRequestError, match="Compare on more columns"):
        compare(both, four, on=["ici_fsdp"])
    with pytest.raises(InvalidRequestError):
        compare(two, two, level=1.5)


def test_the_longer_timing_of_one_configuration_counts(tmp_path: Path) -> None:
    """A configuration timed with two counts of steps is compared by the larger one."""
    once = written(tmp_path / "a", {("fsdp", 8): noisy(0, 1.0, 5)})
    written(tmp_path / "a", {("fsdp", 8): noisy(1, 0.5, 30)})
    result = compare(Results.load(tmp_path / "a"), once)
    assert result.changes[0].before > 3


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_correction_is_holms(values: list[float]) -> None:
    """Corrected values keep their order, never fall, stay probabilities, and the smallest is Bonferroni's."""
    corrected = _corrected(values)
    assert all(0 <= old <= new <= 1 for old, new in zip(values, corrected, strict=True))
    assert [x for _, x in sorted(zip(values, corrected, strict=True))] == sorted(corrected)
    assert min(corrected) == min(1.0, len(values) * min(values))
