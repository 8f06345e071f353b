"""What the workers' environment is like: frozen, with text and HTML forms."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from multislice_nb.cloud.times import short
from multislice_nb.cluster.fold import fold
from multislice_nb.cluster.inventory import ranks_text
from multislice_nb.cluster.transfer import size_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from multislice_nb.cluster.inventory import Worker

__all__ = ["CleanResult", "EnvironmentReport", "Installed", "Process", "WorkerEnvironment"]


@dataclass(frozen=True, slots=True)
class Process:
    """A process on a worker.

    Attributes:
        pid: Its number there.
        user: Who runs it.
        command: Its command line, cut at 300 characters.
        age: Seconds since it started.
        ours: Whether it is an engine, or a command that was run through this package.
    """

    pid: int
    user: str
    command: str
    age: float
    ours: bool

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Process:
        """From what the worker's side says."""
        return cls(*(told[name] for name in ("pid", "user", "command", "age", "ours")))

    def __str__(self) -> str:
        whose = "ours" if self.ours else f"of {self.user}"
        return f"pid {self.pid} {whose}, {short(self.age)} old: {self.command[:80]}"


@dataclass(frozen=True, slots=True)
class WorkerEnvironment:
    """One worker.

    Attributes:
        worker: Which one.
        devices: TPU devices that it has.
        holders: Processes that have one open.
        locks: By path of each lock file, the processes that have it open; none for a stale one.
        ports: By port, the processes that listen on it.
        hidden: Processes that could not be looked into.
        looked: Whether processes could be looked at, which needs Linux.
        versions: Python and the packages that engines need; None for one that is missing.
        disk_free: Bytes left in the home folder.
        memory_available: Bytes of memory.
    """

    worker: Worker
    devices: tuple[str, ...]
    holders: tuple[Process, ...]
    locks: Mapping[str, tuple[int, ...]]
    ports: Mapping[int, tuple[Process, ...]]
    hidden: int
    looked: bool
    versions: Mapping[str, str | None]
    disk_free: int
    memory_available: int

    @classmethod
    def of(cls, worker: Worker, told: Mapping[str, Any]) -> WorkerEnvironment:
        """From what the worker's side says."""
        return cls(
            worker=worker,
            devices=tuple(told["devices"]),
            holders=tuple(Process.of(each) for each in told["holders"]),
            locks={lock["path"]: tuple(lock["holders"]) for lock in told["locks"]},
            ports={each["port"]: tuple(Process.of(p) for p in each["processes"]) for each in told["ports"]},
            hidden=told["hidden"],
            looked=told["looked"],
            versions=told["python"],
            disk_free=told["disk_free"],
            memory_available=told["memory_available"],
        )

    @property
    def stale_locks(self) -> list[str]:
        """Lock files that nobody has open, which libtpu takes for a TPU in use; unknown if some are hidden."""
        return [] if self.hidden else [path for path, holders in self.locks.items() if not holders]

    def _lines(self) -> list[str]:
        lines = ["TPU devices: " + (", ".join(self.devices) or "none")]
        lines += [f"TPU held by {holder}" for holder in self.holders]
        for path, pids in self.locks.items():
            state = f"held by pid {', '.join(map(str, pids))}" if pids else "stale, held by nobody"
            lines.append(
                f"lock file {path}: {'held by a hidden process' if self.hidden and not pids else state}"
            )
        for port, processes in self.ports.items():
            lines += [f"port {port} in use by {process}" for process in processes] or [f"port {port} in use"]
        if self.hidden:
            lines.append(f"{self.hidden} processes of other users could not be looked into")
        if not self.looked:
            lines.append("processes cannot be looked at on this system")
        known = [f"{name} {version or 'missing'}" for name, version in self.versions.items()]
        lines.append(", ".join(known) or "no working Python")
        return lines


@dataclass(frozen=True)
class EnvironmentReport:
    """All workers asked, in rank order."""

    workers: tuple[WorkerEnvironment, ...]
    total: int

    @property
    def free(self) -> bool:
        """Whether no process holds a TPU and no lock file is left, on all of them."""
        return not any(each.holders or each.locks for each in self.workers)

    def __str__(self) -> str:
        texts = {each.worker.rank: "\n".join(each._lines()) for each in self.workers}  # noqa: SLF001 - of this file
        blocks = [f"── {who}\n{text}" for who, text in fold(texts, total=self.total)]
        disk = min(self.workers, key=lambda each: each.disk_free)
        memory = min(self.workers, key=lambda each: each.memory_available)
        blocks.append(
            f"least disk: {size_text(disk.disk_free)} on {ranks_text([disk.worker.rank])} · "
            f"least memory: {size_text(memory.memory_available)} on {ranks_text([memory.worker.rank])}"
        )
        return "\n".join(blocks)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


@dataclass(frozen=True)
class CleanResult:
    """What a cleaning did, by rank.

    Attributes:
        ended: Processes that were ended.
        spared: Processes that hold a TPU or a lock and were not ended, each with the reason.
        removed: Lock files that were removed.
        left: Processes that hold a TPU although they were to end.
        total: Workers of the whole cluster.
    """

    ended: Mapping[int, tuple[Process, ...]]
    spared: Mapping[int, tuple[tuple[Process, str], ...]]
    removed: Mapping[int, tuple[str, ...]]
    left: Mapping[int, tuple[Process, ...]]
    total: int

    def __str__(self) -> str:
        texts = {}
        for rank in self.ended:
            lines = [f"ended {process}" for process in self.ended[rank]]
            lines += [f"removed {path}" for path in self.removed[rank]]
            lines += [f"left alone, {why}: {process}" for process, why in self.spared[rank]]
            lines += [f"did not end: {process}" for process in self.left[rank]]
            texts[rank] = "\n".join(lines) or "nothing to clean"
        return "\n".join(f"── {who}\n{text}" for who, text in fold(texts, total=self.total))

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


@dataclass(frozen=True)
class Installed:
    """What an installation added, by rank, as `name==version`.

    Attributes:
        added: Packages that were not there in that version.
        total: Workers of the whole cluster.
    """

    added: Mapping[int, tuple[str, ...]]
    total: int

    def __str__(self) -> str:
        texts = {
            rank: "added " + ", ".join(pins) if pins else "all was there" for rank, pins in self.added.items()
        }
        return "\n".join(f"[{who}] {text}" for who, text in fold(texts, total=self.total))

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"
