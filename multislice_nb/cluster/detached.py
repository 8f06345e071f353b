"""Shell commands that run on the workers on their own."""

from __future__ import annotations

import datetime as dt
import html
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from multislice_nb import errors
from multislice_nb._portal import sync
from multislice_nb.cluster.driven import driven, watched
from multislice_nb.cluster.errand import errands
from multislice_nb.cluster.fold import fold
from multislice_nb.cluster.inventory import ranks_text
from multislice_nb.cluster.shell_result import ShellResult, status_text
from multislice_nb.cluster.shell_run import ShellRun

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from multislice_nb.cluster.inventory import Worker
    from multislice_nb.cluster.journal import Journal
    from multislice_nb.cluster.progress import CellProgress
    from multislice_nb.cluster.ssh import Connections

__all__ = ["Detached", "DetachedStatus", "listed"]

ALL_OUTPUT = 0
TAIL_BYTES = 100_000


@dataclass(frozen=True, slots=True)
class DetachedStatus:
    """A detached command at one moment.

    Attributes:
        name: What it is called.
        states: By rank, `running`, `exit status 0`, `killed by SIGTERM` and so on.
        total: Workers of the whole cluster.
    """

    name: str
    states: Mapping[int, str]
    total: int

    @property
    def running(self) -> list[int]:
        """Ranks on which it runs."""
        return [rank for rank, state in self.states.items() if state == "running"]

    def __str__(self) -> str:
        parts = [f"{who}: {state}" for who, state in fold(self.states, total=self.total)]
        return f"{self.name}: {'; '.join(parts)}"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


class Detached:
    """A command that runs on workers on its own. Made by `Shell.start`, found again by `Shell.detached`.

    Attributes:
        id: Names it on the workers.
        name: What it is called.
        command: What it is.
        workers: Where it was started.
        started: When, on the first of them; None if that was just now.
    """

    def __init__(
        self,
        identity: str,
        name: str,
        command: str,
        workers: Sequence[Worker],
        connections: Connections,
        total: int,
        journal: Journal,
        *,
        started: dt.datetime | None = None,
    ) -> None:
        self.id = identity
        self.name = name
        self.command = command
        self.workers = tuple(workers)
        self.started = started
        self._connections = connections
        self._total = total
        self._journal = journal

    def status(self) -> DetachedStatus:
        """How it stands on each worker."""
        return sync(self.astatus)

    async def astatus(self) -> DetachedStatus:
        """`status`, to be awaited on the background loop."""
        answers = await errands(self._connections, {worker: {} for worker in self.workers}, "shell:listing")
        found: dict[int, str] = {}
        for worker, answer in answers.items():
            if isinstance(answer, Exception):
                found[worker.rank] = f"unknown: {answer}"
                continue
            mine = next((state for state in answer if state["id"] == self.id), None)
            found[worker.rank] = _state_text(mine)
        return DetachedStatus(self.name, found, self._total)

    def follow(
        self,
        *,
        timeout: float | None = None,
        check: bool = True,
        on_update: Callable[[CellProgress], None] | None = None,
    ) -> ShellResult:
        """Show it from its start and wait for its end. Leaving off does not end it.

        Args:
            timeout: Seconds to wait at the most.
            check: Whether a failure on any worker raises.
            on_update: Called in this thread with the output so far, at most five times a second.

        Raises:
            errors.CellTimeoutError: It runs still after `timeout`.
            errors.WorkerError: It failed on a worker.
        """
        request = {"id": self.id, "wait": True, "tail": ALL_OUTPUT}
        run = self._run(request)
        result: ShellResult = driven(
            lambda: watched(run.run(timeout=timeout), run.look, changed=run.changed), on_update
        )
        if result.timed_out_after is not None:
            late = [error.worker.rank for error in result.errors if error is not None and error.secondary]
            raise errors.CellTimeoutError(
                f"{self.name} still runs on {ranks_text(late, total=self._total)} after {timeout:g} s.",
                fix="It goes on: follow it again, or stop it.",
            )
        if check:
            result.raise_for_error()
        return result

    def output(self, *, tail: int = TAIL_BYTES) -> ShellResult:
        """What it has printed so far, without waiting; of each stream the last `tail` bytes, 0 for all."""
        run = self._run({"id": self.id, "wait": False, "tail": tail})
        return driven(lambda: watched(run.run(), run.look, changed=run.changed), None)

    def _run(self, request: Mapping[str, Any]) -> ShellRun:
        requests = dict.fromkeys(self.workers, request)
        return ShellRun(self._connections, requests, "shell:follow", total=self._total)

    def stop(self, *, grace: float = 5.0) -> DetachedStatus:
        """End it everywhere, with all that it started.

        Args:
            grace: Seconds between asking it to end and killing it.

        Returns:
            How it stands after that.
        """
        return sync(self.astop, grace=grace)

    async def astop(self, *, grace: float = 5.0) -> DetachedStatus:
        """`stop`, to be awaited on the background loop."""
        request = {"id": self.id, "grace": grace}
        await errands(
            self._connections, dict.fromkeys(self.workers, request), "shell:stop", deadline=grace + 20
        )
        return await self.astatus()

    def __repr__(self) -> str:
        return f"<Detached {self.id} {self.name!r} on {ranks_text((w.rank for w in self.workers), total=self._total)}>"


def _state_text(state: Mapping[str, Any] | None) -> str:
    if state is None:
        return "not there"
    if state["running"]:
        return "running"
    return status_text(state.get("status")) if "status" in state else "ended with its worker"


async def listed(connections: Connections, workers: Sequence[Worker], journal: Journal) -> list[Detached]:
    """All detached commands that these workers know, the oldest first."""
    answers = await errands(connections, {worker: {} for worker in workers}, "shell:listing")
    found: dict[str, dict[str, Any]] = {}
    where: dict[str, list[Worker]] = {}
    for worker, answer in answers.items():
        if isinstance(answer, errors.ConnectError):
            raise answer
        if isinstance(answer, Exception):
            raise errors.ClusterError(
                f"{worker} could not list its commands: {answer}", fix="Look at ~/.multislice_nb there."
            ) from answer
        for state in answer:
            found.setdefault(state["id"], state)
            where.setdefault(state["id"], []).append(worker)
    return [
        Detached(
            state["id"],
            state["name"],
            state["command"],
            where[state["id"]],
            connections,
            len(workers),
            journal,
            started=dt.datetime.fromtimestamp(state["started"], tz=dt.UTC),
        )
        for state in sorted(found.values(), key=lambda state: float(state["started"]))
    ]
