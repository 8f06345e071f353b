"""A cell while it runs: what it printed so far, small enough for a screen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from multislice_nb._texts import grouped
from multislice_nb.cluster.fold import interleave
from multislice_nb.cluster.gang import State
from multislice_nb.cluster.inventory import ranks_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from multislice_nb.cluster.gang import Record

__all__ = ["CellProgress"]

LINES = 20
"""Lines that are shown of each worker while a cell runs, at the most; all are in the result and on disk."""

SCREEN = 320
"""Lines that are shown of all workers together, so that a screen update stays small whatever their number."""


@dataclass(frozen=True, slots=True)
class CellProgress:
    """A look at a running cell.

    Attributes:
        running: Ranks that run still.
        rows: Pairs of who and what they printed, equal texts folded, each cut to its last lines.
        total: Workers of the whole cluster.
        notices: What a user should know meanwhile, as that a worker cannot be reached.
    """

    running: tuple[int, ...]
    rows: tuple[tuple[str, str], ...]
    total: int
    notices: tuple[str, ...] = ()

    @classmethod
    def of(cls, records: Mapping[int, Record], total: int, notices: tuple[str, ...] = ()) -> CellProgress:
        """Take a look at what is known by rank, of a cluster with `total` workers."""
        lines = max(1, min(LINES, SCREEN // max(1, len(records))))
        texts = {
            rank: (record.stdout.tail(lines) + record.stderr.tail(lines)).rstrip("\n")
            for rank, record in records.items()
        }
        running = tuple(rank for rank, record in records.items() if record.state is State.RUNNING)
        rows = [(who, text) for who, text in interleave(texts, total=total) if text]
        if len(rows) > SCREEN:
            rows[SCREEN:] = [("others", f"… {grouped(len(rows) - SCREEN)} more, in the result and on disk")]
        return cls(running, tuple(rows), total, notices)

    def __str__(self) -> str:
        parts = [f"── {who}\n{text}" for who, text in self.rows]
        if self.running:
            parts.append(f"… {ranks_text(self.running, total=self.total)} running")
        parts += self.notices
        return "\n".join(parts)
