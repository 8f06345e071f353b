"""SSH to all workers of a queued resource at once.

One asyncssh connection per worker, opened side by side. Host keys are checked against a file of this queued
resource alone, so a name or address that is used again after a deletion never meets an old key.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from multislice_nb import errors
from multislice_nb.cluster.hostkeys import known_hosts_line, write_known_hosts
from multislice_nb.cluster.inventory import Worker, ranks_text
from multislice_nb.cluster.scale import require_descriptors
from multislice_nb.cluster.ways import Way, unusable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    import asyncssh

    from multislice_nb.cloud import SshSettings

__all__ = ["Completed", "Connections", "talking"]

AT_ONCE = 64
"""Handshakes under way at the same time: each costs the notebook's machine a few milliseconds of CPU."""

RETRY_EVERY = 2.0
"""Seconds between two tries while the workers take a new key: a guest agent looks every few."""


@dataclass(frozen=True, slots=True)
class Completed:
    """What a command on one worker left: its exit status (negative: the signal that ended it) and output."""

    worker: Worker
    exit_status: int
    stdout: str
    stderr: str


class Connections:
    """The open SSH connections to a set of workers, by rank.

    Attributes:
        known_hosts: The file with their host keys.
    """

    def __init__(
        self, settings: SshSettings, known_hosts: Path, proxies: Mapping[int, Sequence[str]] | None = None
    ) -> None:
        self._way = Way(settings, proxies or {})
        self.known_hosts = known_hosts
        self._open: dict[int, asyncssh.SSHClientConnection] = {}
        self._workers: dict[int, Worker] = {}
        self._listeners: list[asyncssh.SSHListener] = []
        self._reopening: dict[int, asyncio.Lock] = {}
        self._times: dict[int, int] = {}
        self._keys: dict[int, str] = {}

    async def open(
        self,
        workers: Sequence[Worker],
        host_keys: Mapping[int, str],
        *,
        deadline: float,
        grant: Callable[[], Awaitable[str | None]] | None = None,
    ) -> None:
        """Connect to every worker, or to none.

        Args:
            workers: Whom to connect to.
            host_keys: By rank, the host key that the Cloud TPU API says a worker has. A worker without one
                is trusted at its first connection, and held to that key from then on.
            deadline: Seconds for all of them together, and again for a new key to be taken.
            grant: Has the workers know our key, and may name another user; awaited once if they refuse it.

        Raises:
            errors.ConnectError: Names the workers that did not answer, and why the first did not; or this
                process may not open as many files.
        """
        require_descriptors(len(workers), proxied=self._way.proxied)
        self._workers = {worker.rank: worker for worker in workers}
        keys = await asyncio.to_thread(write_known_hosts, self.known_hosts, workers, host_keys)
        try:
            await self._way.open()
            failed = await self._connect(workers, keys, deadline)
            if grant is not None and _refused(failed):
                self._way.log_in_as(await grant())
                failed = await self._insist(failed, keys, deadline)
        except BaseException:
            await self.close()
            raise
        if failed:
            await self.close()
            raise self._refusal(failed, deadline, granted=grant is not None)
        seen = {rank: self._key_of(rank) for rank in self._open if rank not in keys}
        self._keys = keys | seen
        if seen:
            await asyncio.to_thread(write_known_hosts, self.known_hosts, workers, self._keys)

    async def _insist(
        self, failed: dict[int, BaseException], keys: Mapping[int, str], deadline: float
    ) -> dict[int, BaseException]:
        """Try again while they refuse a key that they are about to take; what failed in the end."""
        limit = time.monotonic() + deadline
        while _refused(failed) and time.monotonic() < limit:
            await asyncio.sleep(RETRY_EVERY)
            failed = await self._connect([self._workers[rank] for rank in failed], keys, deadline)
        return failed

    async def _connect(
        self, workers: Sequence[Worker], keys: Mapping[int, str], deadline: float
    ) -> dict[int, BaseException]:
        """Connect to these at once; what failed, by rank."""
        limit = asyncio.Semaphore(AT_ONCE)

        async def connect(worker: Worker) -> asyncssh.SSHClientConnection:
            async with limit:
                # Its own line and not the file, which would be read whole for every worker.
                key = keys.get(worker.rank)
                return await self._way.connect(worker, known_hosts_line(worker, key) if key else None)

        tasks = {worker.rank: asyncio.create_task(connect(worker)) for worker in workers}
        try:
            await asyncio.wait(tasks.values(), timeout=deadline)
        finally:
            for task in tasks.values():
                task.cancel()
            ended = await asyncio.gather(*tasks.values(), return_exceptions=True)
        failed: dict[int, BaseException] = {}
        for rank, end in zip(tasks, ended, strict=True):
            if isinstance(end, BaseException):
                failed[rank] = end
            else:
                self._open[rank] = end
        return failed

    def _key_of(self, rank: int) -> str:
        """The host key that a worker showed."""
        key = self._open[rank].get_server_host_key()
        return key.export_public_key().decode().strip() if key else ""

    def _refusal(
        self, failed: Mapping[int, BaseException], deadline: float, *, granted: bool
    ) -> errors.ConnectError:
        import asyncssh

        rank = min(failed)
        worker, cause = self._workers[rank], failed[rank]
        reason = (
            f"no answer within {deadline:.0f} s" if isinstance(cause, asyncio.CancelledError) else str(cause)
        )
        if isinstance(cause, ValueError):
            return unusable(cause)
        who = ranks_text(failed, total=len(self._workers))
        fix = "Check that the nodes are READY, that a firewall rule allows SSH, and that your SSH key is known there."
        if isinstance(cause, asyncssh.HostKeyNotVerifiable):
            fix = "Another machine answers there, or it was made anew: look before you trust it, and remove "
            fix += f"{self.known_hosts} if you do."
        elif granted and _refused(failed):
            reason += f" (the key is in the nodes' metadata, and was not taken within {deadline:.0f} s)"
            fix = "Attach again in a minute; if it stays so, the guest agent there does not run, or OS Login is on."
        error = errors.ConnectError(
            f"No SSH connection to {who} of {len(self._workers)}; "
            f"{worker}, {worker.ssh_host}:{worker.ssh_port}: {reason or type(cause).__name__}.",
            fix=fix,
        )
        error.__cause__ = cause
        return error

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks that were connected to and not closed."""
        return tuple(self._open)

    def is_open(self, rank: int) -> bool:
        """Whether the connection to a worker still stands."""
        return rank in self._open and not self._open[rank].is_closed()

    async def reopen(self, rank: int) -> asyncssh.SSHClientConnection:
        """The connection to a worker, made anew if it was lost. One try.

        Raises:
            errors.ConnectError: It was never made or was closed here, or the worker does not answer.
        """
        import asyncssh

        async with self._reopening.setdefault(rank, asyncio.Lock()):
            lost = self._connection(rank)
            if not lost.is_closed():
                return lost
            worker = self._workers[rank]
            try:
                await self._way.open()
                made = await self._way.connect(worker, known_hosts_line(worker, self._keys[rank]))
            except ValueError as error:
                raise unusable(error) from error
            except (OSError, asyncssh.Error) as error:
                raise errors.ConnectError(
                    f"No SSH connection to {worker}, {worker.ssh_host}:{worker.ssh_port}: "
                    f"{error or type(error).__name__}.",
                    fix="Try again; if its node is not READY, %multislice attach NAME --recover waits for it.",
                ) from error
            if self._open.get(rank) is not lost:  # closed meanwhile
                made.close()
            self._connection(rank)
            self._open[rank] = made
            self._times[rank] = self.reopened(rank) + 1
            return made

    def reopened(self, rank: int) -> int:
        """How often the connection to a worker was made anew. What was forwarded through an earlier one is closed."""
        return self._times.get(rank, 0)

    async def run(self, rank: int, command: str, *, stdin: bytes = b"", deadline: float = 60) -> Completed:
        """Run a shell command on one worker.

        Raises:
            errors.ConnectError: The connection was lost, or the command passed its deadline.
        """
        worker = self._workers[rank]
        async with talking(worker, f"The command {command[:120]!r}", deadline):
            process = await (await self.reopen(rank)).create_process(command, encoding=None)
            with contextlib.suppress(BrokenPipeError):  # it ended without reading: its exit status counts
                process.stdin.write(stdin)
                process.stdin.write_eof()
            done = await process.wait()
        status = done.exit_status if done.exit_status is not None else -1
        return Completed(worker, status, _decode(done.stdout), _decode(done.stderr))

    def _connection(self, rank: int) -> asyncssh.SSHClientConnection:
        if rank not in self._open:
            who = self._workers.get(rank, f"rank {rank}")
            raise errors.ConnectError(f"There is no SSH connection to {who}.", fix="Attach again.")
        return self._open[rank]

    async def run_all(
        self, command: str | Mapping[int, str], *, stdin: bytes = b"", deadline: float = 60
    ) -> dict[int, Completed]:
        """Run a command on all workers at once, the same or each its own."""
        commands = command if not isinstance(command, str) else dict.fromkeys(self._open, command)
        ended = await asyncio.gather(
            *(self.run(rank, text, stdin=stdin, deadline=deadline) for rank, text in commands.items())
        )
        return dict(zip(commands, ended, strict=True))

    async def open_process(self, rank: int, command: str) -> asyncssh.SSHClientProcess[bytes]:
        """Start a shell command on one worker and leave its streams, of bytes, to the caller.

        Raises:
            errors.ConnectError: The connection was lost.
        """
        async with talking(self._workers[rank], "A command"):
            return await (await self.reopen(rank)).create_process(command, encoding=None)

    async def forward(self, rank: int, port: int) -> int:
        """A port on the notebook's loopback that leads to `127.0.0.1:port` on a worker."""
        listener = await self._connection(rank).forward_local_port("127.0.0.1", 0, "127.0.0.1", port)
        self._listeners.append(listener)
        return listener.get_port()

    def close_forwards(self) -> None:
        """Close every forwarded port."""
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()

    async def abort(self) -> None:
        """Drop every connection at once, as a network does that fails."""
        for connection in self._open.values():
            connection.abort()

    async def close(self) -> None:
        """Close every connection and forward. What runs on the workers runs on."""
        self.close_forwards()
        for connection in self._open.values():
            connection.close()
        await asyncio.gather(
            *(connection.wait_closed() for connection in self._open.values()), return_exceptions=True
        )
        self._open.clear()
        await self._way.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


@contextlib.asynccontextmanager
async def talking(worker: Worker, doing: str, deadline: float | None = None) -> AsyncIterator[None]:
    """What goes wrong on a connection, said in one way.

    Args:
        worker: With whom.
        doing: What may take no longer than the deadline.
        deadline: Seconds; None for no limit.

    Raises:
        errors.ConnectError: The connection was lost, or the deadline passed.
    """
    import asyncssh

    limit = asyncio.timeout(deadline)
    try:
        async with limit:
            yield
    except (OSError, asyncssh.Error) as error:
        if limit.expired():
            raise errors.ConnectError(
                f"{doing} on {worker} did not end within {deadline:.0f} s.",
                fix="Look at that worker with SSH, then try again.",
            ) from error
        raise errors.ConnectError(
            f"The SSH connection to {worker} was lost: {error}", fix="The next call makes it anew."
        ) from error


def _refused(failed: Mapping[int, BaseException]) -> bool:
    """Whether there are failures, and all are of workers that do not know our key."""
    import asyncssh

    return bool(failed) and all(isinstance(end, asyncssh.PermissionDenied) for end in failed.values())


def _decode(data: Any) -> str:
    return bytes(data or b"").decode(errors="replace")
