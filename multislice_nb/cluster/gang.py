"""One operation on many workers that ends everywhere, whatever happens on any of them.

When a worker fails, the others are given a grace period, for they may be about to fail on their own and say
more; then they are interrupted; those that an interrupt does not free, as in some collectives, are named with
their stacks, and freed by killing them where that was asked for. Nothing waits for ever.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import math
import time
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from multislice_nb.cluster.fold import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from multislice_nb.cluster.link import Link
    from multislice_nb.cluster.settings import GangSettings

__all__ = ["Gang", "Reading", "Record", "State"]

TICK = 0.2
"""Seconds between two looks at the output: five screen updates a second are what a notebook takes well."""


class Reading(Protocol):
    """What tells of the operation on one worker: a request over the wire, or a record on the worker's disk."""

    async def reply(self) -> Any:
        """What the function returned; raises `Lost` where none will come."""

    async def output_complete(self, deadline: float) -> None:
        """Wait until all output is there, or for `deadline` seconds."""

    @property
    def done(self) -> bool:
        """Whether the reply is there."""

    def take_output(self) -> list[dict[str, Any]]:
        """The messages of output that came since the last call, in order."""

    def forget(self) -> None:
        """Drop what is kept of it."""


class State(Enum):
    """What became of the operation on one worker."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    INTERRUPTED = "interrupted"  # it was waiting, and the interrupt reached it
    STUCK = "stuck"  # the interrupt did not reach it; it runs on
    KILLED = "killed"
    LOST = "lost"  # its process ended by itself
    GONE = "gone"  # and its VM with it, or that was reset


DISPLAYS = frozenset({"display_data", "execute_result", "update_display_data"})
"""Types of messages that show something rich."""


@dataclass
class Record:
    """What is known of the operation on one worker."""

    rank: int
    state: State = State.RUNNING
    reply: dict[str, Any] | None = None
    reason: str = ""
    ended: float = 0.0  # seconds since the epoch, on the notebook's clock
    last_output: float | None = None
    stdout: Terminal = field(default_factory=Terminal)
    stderr: Terminal = field(default_factory=Terminal)
    messages: list[dict[str, Any]] = field(default_factory=list)
    taken: collections.Counter[str] = field(default_factory=collections.Counter)
    """How much output came: characters of each stream, and displays. What another source can leave out."""

    def take(self, messages: list[dict[str, Any]]) -> None:
        """Add output as it came."""
        if messages:
            self.last_output = time.time()
        for message in messages:
            if message["type"] == "stream":
                self.taken[message["name"]] += len(message["text"])
                (self.stderr if message["name"] == "stderr" else self.stdout).write(message["text"])
            elif message["type"] in DISPLAYS:
                self.taken["displays"] += 1
                self.messages.append(message)


class Gang:
    """One operation under way."""

    def __init__(
        self,
        link: Link,
        requests: Mapping[int, tuple[Any, ...]],
        settings: GangSettings,
        *,
        timeout: float | None = None,
        observe: Callable[[int, list[dict[str, Any]]], None] = lambda *_: None,
    ) -> None:
        self._link = link
        self._requests = requests
        self._settings = settings
        self._timeout = timeout
        self._observe = observe
        self._pending: dict[int, Reading] = {}
        self._tasks: dict[asyncio.Task[Any], int] = {}
        self._ended: collections.deque[asyncio.Task[Any]] = collections.deque()
        self._news = asyncio.Event()
        self._away = False
        self._news_at = time.monotonic()
        self.records = {rank: Record(rank) for rank in requests}
        self.timed_out = False
        self.aborted = False
        self.stopped = False
        self.abandoned = False
        self.changed = asyncio.Event()

    @property
    def running(self) -> list[int]:
        """Ranks that have not ended."""
        return [rank for rank, record in self.records.items() if record.state is State.RUNNING]

    @property
    def silent_for(self) -> float:
        """Seconds since any worker printed or ended."""
        return time.monotonic() - self._news_at

    @property
    def stuck(self) -> dict[int, Reading]:
        """Requests that neither ended nor took an interrupt, by rank."""
        return {
            rank: self._pending[rank]
            for rank, record in self.records.items()
            if record.state is State.STUCK and not self._pending[rank].done
        }

    async def run(self) -> None:
        """Run to the end on every worker.

        When cancelled, it interrupts all workers, kills those that do not take it, and is then cancelled;
        one that was `abandoned` before leaves them as they are. An error of this machine abandons it too.
        """
        try:
            self._submit()
            await self._until_settled()
            self._drain()
        except asyncio.CancelledError:
            if not self.abandoned:
                await self._stop(kill=True)
            self._drain()
            raise
        except Exception:
            self.abandoned = bool(self.running)
            raise
        finally:
            for task in self._tasks:
                task.cancel()
            for rank, pending in self._pending.items():
                if self.records[rank].state is not State.STUCK:
                    pending.forget()

    def _submit(self) -> None:
        alike: dict[int, list[int]] = {}
        for rank, request in self._requests.items():
            alike.setdefault(id(request), []).append(rank)
        for ranks in alike.values():
            self._pending |= self._link.submit(ranks, *self._requests[ranks[0]])
        for rank in self._requests:
            if rank not in self._pending:
                self._end(rank, State.LOST, reason=f"the engine of rank {rank} is not registered")
                continue
            self._follow(rank, self._pending[rank])

    def _follow(self, rank: int, reading: Reading) -> None:
        self._pending[rank] = reading
        task = asyncio.create_task(reading.reply())
        self._tasks[task] = rank
        task.add_done_callback(self._note)

    def _note(self, task: asyncio.Task[Any]) -> None:
        self._ended.append(task)
        self._news.set()

    # What befalls it from outside

    def pause(self) -> None:
        """Conclude nothing for now: no worker can be heard."""
        self._away = True

    def resume(self, link: Link, read: Callable[[Record], Reading]) -> None:
        """Go on over another link.

        Args:
            link: To the same engines.
            read: Makes another reading of a worker that has not ended, given what has come of it so far.
        """
        self._drain()
        for task in [task for task, rank in self._tasks.items() if rank in self.running]:
            task.cancel()
            del self._tasks[task]
        for rank in self.running:
            self._pending[rank].forget()
            self._follow(rank, read(self.records[rank]))
        self._link, self._away = link, False
        self._news_at = time.monotonic()

    def lose(self, rank: int, reason: str, since: float) -> None:
        """A worker's VM is gone since then, in seconds since the epoch: nothing will come of it."""
        if self.records[rank].state is State.RUNNING:
            self._end(rank, State.GONE, reason=reason)
            self.records[rank].ended = since

    def end_all(self, state: State) -> None:
        """Take the rest as ended so; by whom, the caller knows."""
        for rank in self.running:
            self._end(rank, state)

    def abort(self) -> None:
        """Stop it for its silence."""
        self.aborted = True

    def stop(self) -> None:
        """Free its workers, whatever that takes."""
        self.stopped = True

    async def _until_settled(self) -> None:
        """Wait for all; after the first failure, or at the deadline, only as long as the settings say."""
        settings = self._settings
        deadline = time.monotonic() + self._timeout if self._timeout is not None else math.inf
        while self.running:
            await self._tick()
            now, failed = time.monotonic(), self._has(State.FAILED)
            lost = self._has(State.LOST) or self._has(State.GONE)
            if lost or failed:
                deadline = min(deadline, now + (settings.lost_grace if lost else settings.grace))
            asked = self.aborted or self.stopped
            if (now >= deadline or asked) and self.running and not self._away:
                self.timed_out = not (lost or failed or asked)
                await self._stop(kill=settings.kill_stuck or lost or self.stopped, brief=lost)
                return

    def _has(self, state: State) -> bool:
        return any(record.state is state for record in self.records.values())

    async def _tick(self, *, interrupted: bool = False) -> None:
        """Take what ended and what was printed since the last tick, waiting for it a little."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TICK):
                await self._news.wait()
        self._news.clear()
        while self._ended:
            task = self._ended.popleft()
            rank = self._tasks.get(task)  # None once another reading has taken its place
            if rank is not None and self.records[rank].state is State.RUNNING:
                await self._settle(rank, task, interrupted=interrupted)
        self._drain()

    async def _settle(self, rank: int, task: asyncio.Task[Any], *, interrupted: bool) -> None:
        error = task.exception()
        if error is not None:
            self._end(rank, State.LOST, reason=f"its process ended while it ran this ({error})")
            return
        reading = self._pending[rank]
        await reading.output_complete(self._settings.output_grace)
        if self._away or self._pending[rank] is not reading:  # the rest of its output is lost on this way
            return
        reply = task.result()
        self.records[rank].reply = reply
        if reply["ok"]:
            self._end(rank, State.DONE)
        elif interrupted and reply["error"]["ename"] == "KeyboardInterrupt":
            self._end(rank, State.INTERRUPTED)
        else:
            self._end(rank, State.FAILED)

    def _end(self, rank: int, state: State, *, reason: str = "") -> None:
        record = self.records[rank]
        record.state, record.reason, record.ended = state, reason, time.time()
        self._news_at = time.monotonic()
        self.changed.set()

    def _drain(self) -> None:
        for rank, pending in self._pending.items():
            messages = pending.take_output()
            if messages:
                self.records[rank].take(messages)
                self._observe(rank, messages)
                self._news_at = time.monotonic()
                self.changed.set()

    async def _stop(self, *, kill: bool, brief: bool = False) -> None:
        """Interrupt what runs; what does not take it is killed, or marked as stuck."""
        grace = self._settings.interrupt_grace
        if brief:
            grace = min(grace, 2.0)
        # Twice, for an engine that had not begun when the first came and so took no notice.
        for _ in range(2):
            self._link.signal(self.running, "SIGINT")
            await self._wait_for_interrupted(grace / 2)
        left = self.running
        self._link.signal(left, "SIGUSR1")  # their stacks, while there still are some
        if left and kill:
            await asyncio.sleep(TICK)
            self._link.signal(left, "SIGKILL")
            await self._wait_for_interrupted(self._settings.interrupt_grace)
        for rank in left:
            self._end(rank, State.KILLED if kill else State.STUCK)

    async def _wait_for_interrupted(self, grace: float) -> None:
        limit = time.monotonic() + grace
        while self.running and time.monotonic() < limit:
            await self._tick(interrupted=True)
