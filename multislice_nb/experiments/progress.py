"""How far a sweep is, in words."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from multislice_nb._texts import lasted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from multislice_nb.experiments.results import Results, Row


@dataclasses.dataclass(frozen=True, slots=True)
class SweepProgress:
    """How far a sweep is.

    Attributes:
        done: Configurations that are in the file, those of an earlier run included.
        total: All of them.
        current: The one being measured, as in `fsdp batch 256`; None at the end.
        last: The row just measured; None at the start.
        seconds_left: An estimate from those measured in this run; None until there is one.
        results: Everything measured so far.
    """

    done: int
    total: int
    current: str | None
    last: Row | None
    seconds_left: float | None
    results: Results

    @property
    def milestone(self) -> str | None:
        """A line for each configuration that is done."""
        return None if self.last is None else f"{self.done}/{self.total} {describe(self.last)}"

    def __str__(self) -> str:
        parts = [f"{self.total} configurations · {self.done} done"]
        if self.last is not None:
            parts[0] += f" · {describe(self.last)}"
        if self.current is not None:
            parts.append(f"now {self.current}")
        if self.seconds_left is not None and self.current is not None:
            parts.append(f"{lasted(self.seconds_left)} left")
        return " · ".join(parts)


def describe(row: Row) -> str:
    """A row in a few words, as in `fsdp batch 256: 0.041 TFLOP/s a chip (median of 10, ±2 %)`."""
    name = f"{row['strategy']} batch {row['batch_per_device']}"
    name += on_slices(row["slices"], row.get("slices_attached") or row["slices"])
    if row["status"] == "oom":
        return f"{name}: out of memory"
    if row["status"] != "ok":
        return f"{name}: {row['status']}"
    rate, steps = row["tflops_per_chip"], len(row["step_seconds_all"])
    return f"{name}: {rate:.3g} TFLOP/s a chip (median of {steps}, ±{100 * row['spread']:.0f} %)"


def on_slices(slices: int, attached: int) -> str:
    """What a name needs where not all slices take part."""
    return "" if slices == attached else f" on {slices} of {attached} slices"


def seconds_left(spent: Sequence[tuple[float, float]], ahead: Sequence[float]) -> float | None:
    """How long the rest will take, if time is a constant plus a share of the work.

    Args:
        spent: Work (in any unit) and seconds of each configuration measured.
        ahead: Work of each that is left.

    Returns:
        Seconds; None before anything was measured.
    """
    if not spent:
        return None
    works, times = zip(*spent, strict=True)
    middle_work, middle_time = sum(works) / len(works), sum(times) / len(times)
    variance = sum((work - middle_work) ** 2 for work in works)
    shared = sum((w - middle_work) * (t - middle_time) for w, t in spent)
    slope = max(0.0, shared / variance) if variance else 0.0
    constant = max(0.0, middle_time - slope * middle_work)
    return float(sum(constant + slope * work for work in ahead))
