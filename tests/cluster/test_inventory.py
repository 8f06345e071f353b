"""Which workers are meant."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multislice_nb import errors
from multislice_nb.cluster.inventory import Worker, select

WORKERS = [Worker(rank, rank // 4, rank % 4, f"n-{rank // 4}", "10.0.0.1", "10.0.0.1") for rank in range(12)]


@pytest.mark.parametrize(
    ("targets", "ranks"),
    [
        ({}, list(range(12))),
        ({"ranks": "0,2-3"}, [0, 2, 3]),
        ({"slices": "0,2"}, [0, 1, 2, 3, 8, 9, 10, 11]),
        ({"worker_ids": [0]}, [0, 4, 8]),
        ({"slices": 1, "worker_ids": "1-2"}, [5, 6]),
    ],
)
def test_targets_combine(targets: dict[str, Any], ranks: list[int]) -> None:
    """Every condition narrows the choice."""
    assert select(WORKERS, **targets) == ranks


@pytest.mark.parametrize("text", ["", "x", "3-1", "1-", "-1", "0,,1", "12", "0;1"])
def test_targets_that_name_nobody_are_refused(text: str) -> None:
    """A slip in a target never runs a cell somewhere else."""
    with pytest.raises(errors.InvalidRequestError):
        select(WORKERS, ranks=text)


@pytest.mark.parametrize("ranks", [[], ["0"], [0.5], 1.0, [[1]], [None]])
def test_ranks_that_are_no_numbers_are_refused(ranks: Any) -> None:
    """What Python passes instead of numbers is told like a slip in a text."""
    with pytest.raises(errors.InvalidRequestError, match="rank"):
        select(WORKERS, ranks=ranks)


def test_conditions_that_nobody_fits_are_refused() -> None:
    """Ranks, slices and workers that exclude each other do not run something nowhere."""
    with pytest.raises(errors.InvalidRequestError, match="No worker fits"):
        select(WORKERS, ranks=0, slices=1)


@given(st.text(max_size=8))
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text escapes as another error."""
    with contextlib.suppress(errors.InvalidRequestError):
        assert set(select(WORKERS, ranks=text)) <= set(range(12))
