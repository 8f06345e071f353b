"""A cell while it runs: what it printed so far, small enough for a screen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from multislice_nb.cluster.fold import interleave
from multislice_nb.cluster.gang import State
from multislice_nb.cluster.inventory import ranks_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from multislice_nb.cluster.gang import Record

__all__ = ["CellProgress"]

LINES = 20
"""Lines that are shown of each group of workers while a cell runs; all of them are in the result and on disk."""


@dataclass(frozen=True, slots=True)
class CellProgress:
    """A look at a running cell.

    Attributes:
        running: Ranks that run still.
        rows: Pairs of who and what they printed, equal texts folded, each cut to its last lines.
        total: Workers of the whole cluster.
    """

    running: tuple[int, ...]
    rows: tuple[tuple[str, str], ...]
    total: int

    @classmethod
    def of(cls, records: Mapping[int, Record], total: int) -> CellProgress:
        """Take a look at what is known by rank, of a cluster with `total` workers."""
        texts = {
            rank: (record.stdout.tail(LINES) + record.stderr.tail(LINES)).rstrip("\n")
            for rank, record in records.items()
        }
        running = tuple(rank for rank, record in records.items() if record.state is State.RUNNING)
        rows = tuple((who, text) for who, text in interleave(texts, total=total) if text)
        return cls(running, rows, total)

    def __str__(self) -> str:
        parts = [f"── {who}\n{text}" for who, text in self.rows]
        if self.running:
            parts.append(f"… {ranks_text(self.running, total=self.total)} running")
        return "\n".join(parts)
