"""Cells that ran while no notebook was attached, found again from the workers' disks.

A cell goes on when the notebook's kernel is restarted, the laptop sleeps or SSH drops. Its output and its value
are in its record on every worker (see `record`), and are read from there as a running cell's are from the wire.
"""

from __future__ import annotations

import asyncio
import base64
import json
import pickle
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from multislice_nb.cluster.gang import Record, State

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from multislice_nb.cluster.ssh import Connections

__all__ = ["LeftCell", "find_left"]

LOOK_EVERY = 0.5
"""Seconds between two looks at the records of a cell that runs still."""

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

# Prints, as a JSON line, what a record holds beyond an offset, and the reply once it is there.
_READ = """
import base64, json, os, sys
folder = os.path.join(os.path.expanduser("~"), sys.argv[1], "cells", sys.argv[2])
def read(name, offset=0):
    try:
        with open(os.path.join(folder, name), "rb") as file:
            file.seek(offset)
            return file.read(4 << 20)
    except OSError: return b""
reply = read("reply.pickle")  # first: once it is there, the output is complete
output = read("output.jsonl", int(sys.argv[3]))
output = output[:output.rfind(b"\\n") + 1]
whole = len(output) + int(sys.argv[3]) >= os.path.getsize(os.path.join(folder, "output.jsonl"))
print(json.dumps({"output": output.decode(), "size": len(output),
                  "reply": base64.b64encode(reply).decode() if reply and whole else None}))
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
    _connections: Connections
    _pythons: Mapping[int, str]
    _folder: str
    _offsets: dict[int, int] = field(default_factory=dict)

    @property
    def running(self) -> list[int]:
        """Ranks on which it had not ended at the last look."""
        return [rank for rank, record in self.records.items() if record.state is State.RUNNING]

    async def follow(self, alive: Sequence[int]) -> AsyncGenerator[LeftCell, None]:
        """Read it to its end, yielding after each look that found something new.

        Args:
            alive: Ranks whose engine lives; one that does not will write no more.
        """
        while self.running:
            if await self._look(alive):
                yield self
            if self.running:
                await asyncio.sleep(LOOK_EVERY)

    async def _look(self, alive: Sequence[int]) -> bool:
        commands = {
            rank: f"{shlex.quote(self._pythons[rank])} - {shlex.quote(self._folder)} {self.cell_id} {self._offsets.get(rank, 0)}"
            for rank in self.running
        }
        done = await self._connections.run_all(commands, stdin=_READ.encode())
        news = False
        for rank, end in done.items():
            seen = json.loads(end.stdout.splitlines()[-1])
            record = self.records[rank]
            self._offsets[rank] = self._offsets.get(rank, 0) + seen["size"]
            record.take([json.loads(line) for line in seen["output"].splitlines()])
            news = news or bool(seen["size"])
            if seen["reply"]:
                # Written by the user's own worker, in its own folder.
                record.reply = pickle.loads(base64.b64decode(seen["reply"]))  # noqa: S301
                record.state = State.DONE if record.reply and record.reply["ok"] else State.FAILED
            elif rank not in alive and not seen["size"]:
                record.state, record.reason = State.LOST, "its process ended while it ran this"
            news = news or record.state is not State.RUNNING
        return news


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
        connections,
        pythons,
        folder,
    )
