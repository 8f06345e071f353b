"""The notebook's end of a record: what a cell printed and returned, read from a worker's disk.

For a notebook that was away, for long or for a moment: what came over the wire meanwhile is lost, the record is
whole.
"""

from __future__ import annotations

import asyncio
import base64
import collections
import json
import pickle
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from multislice_nb import errors
from multislice_nb.cluster.gang import DISPLAYS
from multislice_nb.cluster.link import Lost

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from multislice_nb.cluster.gang import Reading
    from multislice_nb.cluster.ssh import Connections

__all__ = ["FromRecord", "Look", "Reader", "Trail"]

LOOK_EVERY = 0.5
"""Seconds between two looks at the record of a cell that runs still."""

LOOKS_A_SECOND = 40
"""Looks a second at all records together: each is a process on a worker, and a channel of its connection."""

# Prints, as a JSON line, what a record holds beyond an offset, and the reply once it is there.
_READ = """
import base64, json, os, sys
folder = os.path.join(os.path.expanduser("~"), *sys.argv[1:4])
def read(name, offset=0, size=-1):
    try:
        with open(os.path.join(folder, name), "rb") as file:
            file.seek(offset)
            data = file.read(size)
            return data if size < 0 or b"\\n" in data else data + file.readline()  # a message comes whole
    except OSError: return b""
reply = read("reply.pickle")  # first: once it is there, the output is complete
output = read("output.jsonl", int(sys.argv[4]), 4 << 20)
output = output[:output.rfind(b"\\n") + 1]
begun = os.path.exists(os.path.join(folder, "output.jsonl"))
whole = begun and len(output) + int(sys.argv[4]) >= os.path.getsize(os.path.join(folder, "output.jsonl"))
print(json.dumps({"output": output.decode(), "size": len(output), "begun": begun,
                  "reply": base64.b64encode(reply).decode() if reply and whole else None}))
"""


@dataclass(frozen=True, slots=True)
class Look:
    """What was found.

    Attributes:
        messages: Output beyond the offset that was asked for, at most 4 MiB of it, or one message that is larger.
        size: Its bytes in the record, by which the next offset is further.
        begun: Whether there is a record at all.
        reply: How it ended, once it has and all its output was read.
    """

    messages: list[dict[str, Any]]
    size: int
    begun: bool
    reply: dict[str, Any] | None


class Reader:
    """Reads one cell's record on each worker.

    Args:
        connections: Open connections.
        pythons: By rank, the Python to look with.
        folder: The cluster's folder, relative to the home folder of a worker.
        shelf: `cells`, or `calls` of functions.
        request: The cell's id.
    """

    def __init__(
        self, connections: Connections, pythons: Mapping[int, str], folder: str, shelf: str, request: str
    ) -> None:
        self._connections = connections
        self._pythons = pythons
        self._arguments = [folder, shelf, request]
        self.pause = max(LOOK_EVERY, len(pythons) / LOOKS_A_SECOND)

    async def read(self, rank: int, offset: int) -> Look:
        """What a worker's record holds beyond an offset.

        Raises:
            errors.ConnectError: The worker cannot be reached, or its disk not be read.
        """
        command = shlex.join([self._pythons[rank], "-", *self._arguments, str(offset)])
        done = await self._connections.run(rank, command, stdin=_READ.encode())
        try:
            seen = json.loads(done.stdout.splitlines()[-1])
        except (IndexError, ValueError) as error:
            raise errors.ConnectError(
                f"The record of a cell on {done.worker} cannot be read: {done.stderr.strip()[-300:]}",
                fix="See that the worker's disk is not full.",
            ) from error
        # Written by the user's own worker, in its own folder.
        reply = pickle.loads(base64.b64decode(seen["reply"])) if seen["reply"] else None  # noqa: S301
        return Look(
            [json.loads(line) for line in seen["output"].splitlines()], seen["size"], seen["begun"], reply
        )


class Trail:
    """One worker's record, read on from where the last look at it ended.

    Args:
        reader: Of this operation.
        rank: Which worker.
    """

    def __init__(self, reader: Reader, rank: int) -> None:
        self._reader = reader
        self._rank = rank
        self._offset = 0
        self.pause = reader.pause

    async def look(self, *, lives: bool) -> tuple[Look, bool]:
        """What is new, and whether it breaks off there: whoever wrote it was gone before this look found nothing.

        Args:
            lives: Whether the worker's engine lived when this was called.

        Raises:
            errors.ConnectError: The worker cannot be reached, or its disk not be read.
        """
        found = await self._reader.read(self._rank, self._offset)
        self._offset += found.size
        return found, not lives and not found.size and found.reply is None


class FromRecord:
    """The operation on one worker as its record tells it, from where the wire fell silent.

    Args:
        reader: Of this operation.
        rank: Which worker.
        taken: How much output is known already, as in `Record.taken`.
        alive: Whether the worker's engine lives.
        ask: Sends the request again, in case it never arrived. The worker runs it once, and answers once that has
            ended, for a worker whose disk is full keeps no record.
    """

    def __init__(
        self,
        reader: Reader,
        rank: int,
        taken: Mapping[str, int],
        *,
        alive: Callable[[], bool],
        ask: Callable[[], Reading | None],
    ) -> None:
        self._trail = Trail(reader, rank)
        self._known = dict(taken)
        self._alive = alive
        self._ask = ask
        self._output: collections.deque[dict[str, Any]] = collections.deque()
        self._task = asyncio.create_task(self._follow())
        self._task.add_done_callback(
            lambda task: task.cancelled() or task.exception()
        )  # it may be nobody's any more

    async def reply(self) -> Any:
        """What the function returned.

        Raises:
            Lost: The engine died.
        """
        return await asyncio.shield(self._task)

    async def output_complete(self, deadline: float) -> None:
        """Nothing to wait for: the reply comes after all output."""

    @property
    def done(self) -> bool:
        """Whether the reply is there."""
        return self._task.done() and not self._task.cancelled()

    def take_output(self) -> list[dict[str, Any]]:
        """The messages of output that came since the last call, in order."""
        taken = list(self._output)
        self._output.clear()
        return taken

    def forget(self) -> None:
        """Look no more."""
        self._task.cancel()

    async def _follow(self) -> dict[str, Any]:
        asked: Reading | None = None
        while True:
            lives = self._alive()  # asked first: what it wrote before its end is read
            ended = asked is not None and asked.done
            try:
                look, breaks_off = await self._trail.look(lives=lives)
            except errors.ConnectError as error:
                if not lives:
                    raise Lost(str(error.what)) from error
                await asyncio.sleep(self._trail.pause)
                continue
            self._output.extend(filter(None, map(self._unknown, look.messages)))
            if look.reply is not None:
                return look.reply
            if breaks_off:
                raise Lost("the engine died")
            if not look.begun and asked is None:
                asked = self._ask()
            elif not look.begun and asked is not None and ended:
                return dict(await asked.reply())
            if not look.size:
                await asyncio.sleep(self._trail.pause)

    def _unknown(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """What of a message had not come over the wire."""
        if message["type"] in DISPLAYS:
            if self._known.get("displays", 0) > 0:
                self._known["displays"] -= 1
                return None
        elif message["type"] == "stream":
            known = min(self._known.get(message["name"], 0), len(message["text"]))
            if known:
                self._known[message["name"]] -= known
                text = message["text"][known:]
                return {**message, "text": text} if text else None
        return message
