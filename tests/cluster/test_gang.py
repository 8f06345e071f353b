"""One operation on workers that this module plays: what it leaves where this machine or a worker fails it."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from multislice_nb.cluster.gang import Gang, State
from multislice_nb.cluster.reader import FromRecord, Look
from multislice_nb.cluster.settings import GangSettings


class Worker:
    """A request to a worker that printed something and goes on."""

    def __init__(self) -> None:
        self.printed = [{"type": "stream", "name": "stdout", "text": "x"}]
        self.signals: list[str] = []
        self.pause = 0.01

    async def reply(self) -> None:
        """It does not come."""
        await asyncio.Event().wait()

    async def output_complete(self, _: float) -> None:
        """All is there."""

    @property
    def done(self) -> bool:
        """It is not."""
        return False

    def take_output(self) -> list[dict[str, Any]]:
        """What was printed."""
        taken, self.printed = self.printed, []
        return taken

    def forget(self) -> None:
        """Nothing is kept."""

    # As a link to it alone

    def submit(self, ranks: list[int], *_: object) -> dict[int, Worker]:
        """Start it."""
        return dict.fromkeys(ranks, self)

    def signal(self, _: list[int], name: str) -> None:
        """Note it."""
        self.signals.append(name)

    # As a reader of its record

    async def read(self, _rank: int, _offset: int) -> Look:
        """It goes on."""
        return Look([], 0, begun=True, reply=None)


async def test_an_error_of_this_machine_leaves_the_cell_running() -> None:
    """Where output cannot be taken here, the workers are not stopped, and are known to run still."""
    worker = Worker()

    def observe(*_: object) -> None:
        raise MemoryError

    gang = Gang(cast("Any", worker), {0: ("run_cell",)}, GangSettings(), observe=observe)
    with pytest.raises(MemoryError):
        await gang.run()
    assert (gang.abandoned, gang.running, worker.signals) == (True, [0], [])
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_stuck_worker_stays_stuck_whatever_tells_of_it() -> None:
    """One whose record is read, since its connection had dropped, is not taken for free when the cell is given up."""
    worker = Worker()
    settings = GangSettings(interrupt_grace=0.02)
    gang = Gang(cast("Any", worker), {0: ("run_cell",)}, settings, timeout=0.1)
    running = asyncio.create_task(gang.run())
    await asyncio.sleep(0)
    followed = FromRecord(cast("Any", worker), 0, {}, alive=lambda: True, ask=lambda: None)
    gang.resume(cast("Any", worker), lambda _: followed)
    await running
    assert gang.records[0].state is State.STUCK
    assert gang.stuck == {0: followed}
    followed.forget()
    await asyncio.sleep(0)
    assert not followed.done
