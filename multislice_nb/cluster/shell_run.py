"""One shell command on many workers at once, its output as it comes and its exit status on each."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import json
import math
import time
from typing import TYPE_CHECKING, Any

from multislice_nb import errors
from multislice_nb.cluster.errand import MARK, opened
from multislice_nb.cluster.gang import Record, State
from multislice_nb.cluster.progress import CellProgress
from multislice_nb.cluster.result import RemoteError, WorkerResult
from multislice_nb.cluster.shell_result import ShellResult, status_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import asyncssh

    from multislice_nb.cluster.inventory import Worker
    from multislice_nb.cluster.ssh import Connections

__all__ = ["ShellRun"]

_LATE_OUTPUT = 1.0
"""Seconds, once a command has ended, for output that is on its way. What it left in the background may hold the
streams for ever."""

STOP_DEADLINE = 12.0
"""Seconds for a worker to end a command that was told to stop, which is killed after the first few."""

TAIL = 8
"""Lines of standard error that a failure shows."""

_CHUNK = 1 << 16


class ShellRun:
    """A command under way.

    Args:
        connections: Open connections.
        requests: By worker, what its side is asked.
        function: `shell:run`, or `shell:follow` for one that runs detached.
        total: Workers of the whole cluster.
        observe: Told all output as it comes, by rank.
    """

    def __init__(
        self,
        connections: Connections,
        requests: Mapping[Worker, Mapping[str, Any]],
        function: str,
        *,
        total: int,
        observe: Callable[[int, list[dict[str, Any]]], None] = lambda *_: None,
    ) -> None:
        self._connections = connections
        self._requests = requests
        self._function = function
        self._total = total
        self._observe = observe
        self._workers = {worker.rank: worker for worker in requests}
        self._processes: dict[int, asyncssh.SSHClientProcess[bytes]] = {}
        self._told: dict[int, dict[str, Any]] = {}
        self._refused: dict[int, tuple[str, str]] = {}
        self.records = {worker.rank: Record(worker.rank) for worker in requests}
        self.changed = asyncio.Event()

    def look(self) -> CellProgress:
        """How far it is."""
        return CellProgress.of(self.records, self._total)

    async def run(self, *, timeout: float | None = None, grace: float | None = None) -> ShellResult:
        """Run it to its end on every worker.

        When cancelled it interrupts the command everywhere, ends it where that does not help, and is then
        cancelled.

        Args:
            timeout: Seconds until it is stopped everywhere.
            grace: Seconds that it gets elsewhere once it has failed on one worker; None for no limit.
        """
        tasks = {asyncio.create_task(self._one(worker)) for worker in self._requests}
        timed_out = False
        try:
            timed_out = await self._until_settled(tasks, timeout, grace)
        except asyncio.CancelledError:
            self._order(b"INT\n")
            await asyncio.wait(tasks, timeout=3)
            self._order(b"TERM\n")
            await asyncio.wait(tasks, timeout=STOP_DEADLINE)
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        results = tuple(self._result(rank) for rank in sorted(self.records))
        return ShellResult(results, total=self._total, timed_out_after=timeout if timed_out else None)

    async def _until_settled(
        self, tasks: set[asyncio.Task[None]], timeout: float | None, grace: float | None
    ) -> bool:
        """Wait for all; whether the deadline passed before."""
        limit = time.monotonic() + timeout if timeout is not None else math.inf
        deadline, pending = limit, tasks
        while pending:
            left = deadline - time.monotonic()
            ended, pending = await asyncio.wait(
                pending,
                timeout=max(0.0, left) if left < math.inf else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for task in ended:
                task.result()
            if grace is not None and self._has_failed() and deadline == limit:
                deadline = min(limit, time.monotonic() + grace)
            if pending and time.monotonic() >= deadline:
                await self._stop(pending)
                return deadline == limit
        return False

    def _has_failed(self) -> bool:
        return any(record.state in {State.FAILED, State.LOST} for record in self.records.values())

    async def _stop(self, pending: set[asyncio.Task[None]]) -> None:
        late = [rank for rank, record in self.records.items() if record.state is State.RUNNING]
        self._order(b"TERM\n")
        await asyncio.wait(pending, timeout=STOP_DEADLINE)
        for rank in late:
            ended = self.records[rank].state is not State.RUNNING
            self.records[rank].state = State.INTERRUPTED if ended else State.STUCK
            self.records[rank].ended = time.time()

    def _order(self, line: bytes) -> None:
        for rank, process in self._processes.items():
            if self.records[rank].state is State.RUNNING:
                with contextlib.suppress(OSError):  # it has just ended
                    process.stdin.write(line)

    async def _one(self, worker: Worker) -> None:
        import asyncssh

        record = self.records[worker.rank]
        try:
            async with opened(self._connections, worker, self._function, self._requests[worker]) as process:
                self._processes[worker.rank] = process
                await self._read(worker.rank, process)
        except (OSError, asyncssh.Error, errors.ConnectError) as error:
            record.state, record.reason = State.LOST, str(error)
        record.ended = time.time()
        self.changed.set()

    async def _read(self, rank: int, process: asyncssh.SSHClientProcess[bytes]) -> None:
        stderr = asyncio.create_task(self._drain_stderr(rank, process))
        stdout = asyncio.create_task(self._drain_stdout(rank, process))
        record = self.records[rank]
        try:
            last = await stderr
            await asyncio.wait({stdout}, timeout=_LATE_OUTPUT)
        finally:
            stderr.cancel()
            stdout.cancel()
            await asyncio.gather(stderr, stdout, return_exceptions=True)
        if "answer" in last:
            self._told[rank] = last["answer"]
            record.state = State.DONE if last["answer"]["status"] == 0 else State.FAILED
        elif "error" in last:  # the worker is there and could not start it
            self._refused[rank] = last["error"], last["text"]
            record.state = State.FAILED
        else:
            record.state, record.reason = State.LOST, last["text"]

    async def _drain_stdout(self, rank: int, process: asyncssh.SSHClientProcess[bytes]) -> None:
        decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        while chunk := await process.stdout.read(_CHUNK):
            self._take(rank, "stdout", decode(chunk))
        self._take(rank, "stdout", decode(b"", final=True))

    async def _drain_stderr(self, rank: int, process: asyncssh.SSHClientProcess[bytes]) -> dict[str, Any]:
        """Pass standard error on, but for the line behind the mark that says how the command ended."""
        decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        held = ""
        while chunk := await process.stderr.read(_CHUNK):
            text, held = _split(held + decode(chunk))
            self._take(rank, "stderr", text)
            line, newline, rest = held.partition("\n")
            if newline:
                self._take(rank, "stderr", rest)
                last: dict[str, Any] = json.loads(line.removeprefix(MARK))
                return last
        self._take(rank, "stderr", held)
        return {"text": f"the SSH session ended before the command ({status_text(process.exit_status)})"}

    def _take(self, rank: int, name: str, text: str) -> None:
        if text:
            message = {"type": "stream", "name": name, "text": text}
            self.records[rank].take([message])
            self._observe(rank, [message])
            self.changed.set()

    def _result(self, rank: int) -> WorkerResult:
        record, told = self.records[rank], self._told.get(rank, {})
        stdout, stderr = record.stdout.text, record.stderr.text
        return WorkerResult(
            worker=self._workers[rank],
            value=told.get("status"),
            stdout=stdout,
            stderr=stderr,
            error=self._error(record, told, stderr or stdout),
            seconds=told["finished"] - told["started"] if told else 0.0,
        )

    def _error(self, record: Record, told: Mapping[str, Any], output: str) -> RemoteError | None:
        worker, time_ = self._workers[record.rank], told.get("finished", record.ended)
        match record.state:
            case State.DONE | State.RUNNING:
                return None
            case State.LOST:
                return RemoteError(worker, "WorkerLost", record.reason, time=time_)
            case State.FAILED if record.rank in self._refused:
                return RemoteError(worker, *self._refused[record.rank], time=time_)
            case State.FAILED:
                tail = "\n".join(output.splitlines()[-TAIL:])
                return RemoteError(
                    worker, "ExitStatus", status_text(told["status"]), traceback=tail, time=time_
                )
        how = "was stopped" if record.state is State.INTERRUPTED else "could not be stopped"
        return RemoteError(worker, "Stopped", f"still running, and {how}", time=time_, secondary=True)


def _split(text: str) -> tuple[str, str]:
    """What comes before the mark, and from the mark on; also where the mark has come only in part."""
    start = text.rfind(MARK[0])
    tail = text[start:] if start >= 0 else ""
    if tail and (tail.startswith(MARK) or MARK.startswith(tail)):
        return text[:start], tail
    return text, ""
