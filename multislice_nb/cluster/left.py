"""Cells that ran while no notebook was attached, found again from the workers' disks.

A cell goes on when the notebook's kernel is restarted, the laptop sleeps or SSH drops. Its output and its value
are in its record on every worker (see `record`), and are read from there as a running cell's are from the wire.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from multislice_nb.cluster.gang import Record, State
from multislice_nb.cluster.reader import Reader, Trail
from multislice_nb.errors import ConnectError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from multislice_nb.cluster.ssh import Connections

__all__ = ["LeftCell", "find_left"]

# Prints the newest record that nobody has seen, if there is one, as a JSON line.
_FIND = """
import json, os, sys
root = os.path.join(os.path.expanduser("~"), sys.argv[1], "cells")
def age(name):
    try: return os.path.getmtime(os.path.join(root, name, "cell.json"))
    except OSError: return 0  # it was interrupted before it began
names = sorted(filter(age, os.listdir(root) if os.path.isdir(root) else ()), key=age)
if names and not os.path.exists(os.path.join(root, names[-1], "seen")):
    print(open(os.path.join(root, names[-1], "cell.json")).read())
"""


@dataclass
class LeftCell:
    """A cell that was found on the workers.

    Attributes:
        cell_id: Names its record.
        name: What tracebacks call it.
        started: When it started, in seconds since the epoch on worker 0.
        records: What is known of it by rank, as of a running cell.
    """

    cell_id: str
    name: str
    started: float
    records: dict[int, Record]
    _reader: Reader
    _trails: dict[int, Trail] = field(init=False)

    def __post_init__(self) -> None:
        self._trails = {rank: Trail(self._reader, rank) for rank in self.records}

    @property
    def running(self) -> list[int]:
        """Ranks on which it had not ended at the last look."""
        return [rank for rank, record in self.records.items() if record.state is State.RUNNING]

    async def follow(self, alive: Callable[[], Sequence[int]]) -> AsyncGenerator[LeftCell, None]:
        """Read it to its end, yielding after each look.

        Args:
            alive: Tells the ranks whose engine lives; one that does not will write no more.
        """
        while self.running:
            await asyncio.gather(*(self._look(rank, lives=rank in alive()) for rank in self.running))
            yield self
            if self.running:
                await asyncio.sleep(self._reader.pause)

    async def _look(self, rank: int, *, lives: bool) -> None:
        record = self.records[rank]
        try:
            look, breaks_off = await self._trails[rank].look(lives=lives)
        except ConnectError:  # it is reached again, or known to be gone, after some looks
            return
        record.take(look.messages)
        if look.reply is not None:
            record.reply = look.reply
            record.state = State.DONE if look.reply["ok"] else State.FAILED
        elif breaks_off:
            record.state, record.reason = State.LOST, "its process ended while it ran this"


async def find_left(connections: Connections, pythons: Mapping[int, str], folder: str) -> LeftCell | None:
    """The newest cell whose reply no notebook has got, if there is one.

    Args:
        connections: Open connections to all workers.
        pythons: By rank, the Python to look with.
        folder: The cluster's folder, relative to the home folder of a worker.
    """
    commands = {rank: f"{shlex.quote(python)} - {shlex.quote(folder)}" for rank, python in pythons.items()}
    done = await connections.run_all(commands, stdin=_FIND.encode())
    found: dict[int, dict[str, Any]] = {
        rank: json.loads(end.stdout.splitlines()[-1]) for rank, end in done.items() if end.stdout.strip()
    }
    if not found:
        return None
    newest = max(found.values(), key=lambda cell: cell["started"])
    ranks = [rank for rank, cell in found.items() if cell["id"] == newest["id"]]
    return LeftCell(
        newest["id"],
        newest["name"],
        newest["started"],
        {rank: Record(rank) for rank in ranks},
        Reader(connections, pythons, folder, "cells", newest["id"]),
    )
