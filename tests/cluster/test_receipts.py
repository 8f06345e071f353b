"""Receipts for replies, in front of a link that only notes what it is asked to send."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from multislice_nb.cluster import receipts
from multislice_nb.cluster.receipts import Receipts


class Sent:
    """A message on its way, which arrives at once."""

    def forget(self) -> None:
        """Nothing is kept."""

    async def reply(self) -> None:
        """It has arrived."""


class Notes:
    """What stands in for a link."""

    def __init__(self) -> None:
        self.sent: list[tuple[tuple[int, ...], str]] = []
        self.news = asyncio.Event()

    def submit(self, ranks: tuple[int, ...], function: str, cell_id: str) -> dict[int, Sent]:
        """Note what is sent."""
        assert function == "acknowledge"
        self.sent.append((ranks, cell_id))
        self.news.set()
        return {rank: Sent() for rank in ranks}


@pytest.fixture
def notes() -> Notes:
    """An empty list of what was sent."""
    return Notes()


@pytest.fixture
def owing(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> Receipts:
    """Receipts that are sent when the loop is next free."""
    monkeypatch.setattr(receipts, "AFTER", 0)
    return Receipts(lambda: cast("Any", notes))


async def test_a_burst_of_cells_needs_one_receipt(owing: Receipts, notes: Notes) -> None:
    """Only the newest cell is ever offered again, so the receipt of the last one does for all."""
    for cell_id in "abc":
        owing.supersede([0, 1])
        owing.owe(cell_id, [0, 1])
    await notes.news.wait()
    assert notes.sent == [((0, 1), "c")]


async def test_workers_that_sit_out_get_their_receipt_at_once(owing: Receipts, notes: Notes) -> None:
    """A cell on some workers says nothing to the others, whose newest cell is still the one before."""
    owing.owe("a", [0, 1])
    owing.supersede([0])
    assert notes.sent == [((0, 1), "a")]


async def test_a_detach_leaves_nothing_owed(owing: Receipts, notes: Notes) -> None:
    """What is owed is sent before the connection goes, and once only."""
    owing.owe("a", [0])
    await owing.give()
    await owing.give()
    await asyncio.sleep(0)
    assert notes.sent == [((0,), "a")]
