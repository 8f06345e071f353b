"""Numbers and times as people write them."""

from __future__ import annotations

import pytest

from multislice_nb._texts import grouped, lasted


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.42, "0.4 s"), (-1, "0.0 s"), (42.4, "42 s"), (151, "2 min 31 s"), (4800, "1 h 20 min")],
)
def test_a_time_is_told_in_its_two_largest_units(seconds: float, text: str) -> None:
    """What something took is told to about a hundredth."""
    assert lasted(seconds) == text


def test_digits_stand_in_groups() -> None:
    """Large numbers are grouped by blanks, which no language takes for a decimal mark."""
    assert [grouped(number) for number in (22, 176_000, 1_234_567.6)] == ["22", "176 000", "1 234 568"]
