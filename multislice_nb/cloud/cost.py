"""What a queued resource has used so far: chip-hours, and their cost where the user gave a price."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from multislice_nb.cloud.ledger import StateChange
    from multislice_nb.cloud.status import QueuedResourceStatus

__all__ = ["Usage", "usage"]

_PAID = {"ACTIVE", "SUSPENDING"}


@dataclass(frozen=True, slots=True)
class Usage:
    """Time with slices.

    Attributes:
        chip_hours: Chips times hours since it was first seen ACTIVE, at all times when it was.
        cost: That times the price of a chip-hour, in the user's own currency; None without a price.
    """

    chip_hours: float
    cost: float | None = None

    def __str__(self) -> str:
        if not self.chip_hours:
            return ""
        cost = "" if self.cost is None else f", cost {self.cost:.2f}"
        return f"{self.chip_hours:.2f} chip-hours{cost}"


def usage(
    status: QueuedResourceStatus,
    timeline: Sequence[StateChange],
    chip_hour_price: float | None = None,
    now: datetime | None = None,
) -> Usage:
    """Chip-hours from a timeline, counted as far as this tool saw it.

    Args:
        status: How many chips it has.
        timeline: The states it was seen in, oldest first.
        chip_hour_price: What a chip costs per hour.
        now: The end of its last state; this moment when None.
    """
    ends = [*(step.at for step in timeline[1:]), now or datetime.now(UTC)]
    seconds = sum(
        (end - step.at).total_seconds()
        for step, end in zip(timeline, ends, strict=False)
        if step.state in _PAID
    )
    hours = max(0.0, seconds) / 3600 * (status.chips or 0)
    return Usage(hours, None if chip_hour_price is None else hours * chip_hour_price)
