"""What this tool created, on disk, so that nothing is forgotten when a kernel dies.

A queued resource is entered before it is asked for and struck out when it is known to be gone. One SQLite
file serves all notebooks of a user. An entry is of one request: what has its name later is something else.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import threading
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import psutil

from multislice_nb.cloud.provider import REQUEST_LABEL
from multislice_nb.errors import LedgerError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from multislice_nb.cloud.status import QueuedResourceStatus

__all__ = ["JOB_LABEL", "Entry", "Ledger", "StateChange"]

JOB_LABEL = "multislice-nb-job"
"""The label of a queued resource that names the unattended job it belongs to."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (
    request_id TEXT PRIMARY KEY, realm TEXT, project TEXT, zone TEXT, name TEXT,
    accelerator_type TEXT, node_count INTEGER, chips INTEGER, capacity TEXT, asked_at REAL,
    owner_host TEXT, owner_pid INTEGER, owner_started REAL,
    expires_at REAL, idle_limit REAL, used_at REAL, chip_hour_price REAL, ended_at REAL, job TEXT DEFAULT ''
);
CREATE TABLE IF NOT EXISTS changes (
    realm TEXT, project TEXT, zone TEXT, name TEXT, born REAL, state TEXT, initiator TEXT, at REAL
);
CREATE INDEX IF NOT EXISTS changes_by_name ON changes (project, zone, name, born);
"""


@dataclass(frozen=True, slots=True)
class StateChange:
    """One step of a timeline.

    Attributes:
        state: The state it entered.
        initiator: USER or SERVICE where the API tells, else empty.
        at: When this tool first saw it; its creation for the first one.
    """

    state: str
    initiator: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One queued resource of ours. Times are seconds since the epoch.

    Attributes:
        request_id: Id of its create call, also a label of it.
        realm: `google`, or `emulator` for the one that keeps its state beside this ledger.
        project: Its project.
        zone: Its zone.
        name: Its name.
        accelerator_type: Type of each slice.
        node_count: Number of slices.
        chips: Chips of all slices.
        capacity: on-demand, spot, reserved or best-effort.
        asked_at: When it was asked for.
        owner_host: Machine of the notebook that asked.
        owner_pid: Process of that notebook.
        owner_started: When that process started, since process ids come again.
        expires_at: When its time to live is over.
        idle_limit: Seconds without use after which it is deleted.
        used_at: When it was last used.
        chip_hour_price: What a chip costs per hour, as the user said.
        ended_at: When it was known to be gone.
        job: The unattended job that it belongs to and that deletes it; empty where it is a notebook's.
    """

    request_id: str
    realm: str
    project: str
    zone: str
    name: str
    accelerator_type: str
    node_count: int
    chips: int
    capacity: str
    asked_at: float
    owner_host: str = ""
    owner_pid: int = 0
    owner_started: float = 0.0
    expires_at: float | None = None
    idle_limit: float | None = None
    used_at: float = 0.0
    chip_hour_price: float | None = None
    ended_at: float | None = None
    job: str = ""

    @property
    def owner_is_alive(self) -> bool | None:
        """Whether the notebook that asked for it still runs; None when that was another machine."""
        if self.owner_host != socket.gethostname():
            return None
        try:
            return abs(psutil.Process(self.owner_pid).create_time() - self.owner_started) < 1.0
        except psutil.NoSuchProcess:
            return False

    def is_of(self, status: QueuedResourceStatus) -> bool:
        """Whether that is what was asked for here, and nothing that has its name by now."""
        return status.labels.get(REQUEST_LABEL) == self.request_id

    def overdue(self, now: float | None = None) -> str | None:
        """Why it should be deleted by now: its time to live or its idle limit; None when it need not."""
        moment = time.time() if now is None else now
        if self.expires_at is not None and moment >= self.expires_at:
            return "its time to live is over"
        if self.idle_limit is not None and moment >= self.used_at + self.idle_limit:
            return "it was idle for longer than its limit"
        return None


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a queued resource was when it was last seen."""

    born: float
    state: str
    since: datetime
    request_id: str | None


class Ledger:
    """The file, and what was last seen of each queued resource.

    Args:
        path: The SQLite file; made with mode 0600.
        realm: Whose queued resources these are: `google` or `emulator`.

    Raises:
        LedgerError: Here and in every method: the file cannot be read or written.
    """

    def __init__(self, path: Path, realm: str) -> None:
        self.realm = realm
        self._path = path
        self._lock = threading.RLock()
        self._last: dict[tuple[str, str, str], _Seen] = {}
        with self._telling():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.touch(mode=0o600)
            # Whichever thread asks: the lock keeps them apart.
            self._open: sqlite3.Connection | None = sqlite3.connect(
                path, timeout=10.0, check_same_thread=False, isolation_level=None
            )
        with self._file() as database:
            database.execute("PRAGMA journal_mode=WAL")
            database.execute("PRAGMA synchronous=NORMAL")
            database.executescript(_SCHEMA)
            _add_missing_columns(database)

    def enter(self, entry: Entry) -> Entry:
        """Write down that something is about to be created, by this process."""
        process = psutil.Process()
        owned = replace(
            entry,
            owner_host=socket.gethostname(),
            owner_pid=os.getpid(),
            owner_started=process.create_time(),
            used_at=entry.used_at or entry.asked_at,
        )
        names = [field.name for field in fields(Entry)]
        marks = ", ".join("?" * len(names))
        values = [getattr(owned, name) for name in names]
        self._write(f"INSERT OR REPLACE INTO entries ({', '.join(names)}) VALUES ({marks})", values)  # noqa: S608 - names of our own fields
        return owned

    def strike(self, request_id: str) -> None:
        """It was refused: nothing was created."""
        self._write("DELETE FROM entries WHERE request_id = ?", [request_id])

    def settle(self, entry: Entry) -> None:
        """It was created: whatever else was asked for under its name is gone, and it is not.

        While it was being created there was none of its name, which another notebook may have taken for its end.
        """
        self._write(
            "UPDATE entries SET ended_at = CASE request_id WHEN ? THEN NULL ELSE ? END "
            "WHERE realm = ? AND project = ? AND zone = ? AND name = ? AND (ended_at IS NULL OR request_id = ?)",
            [
                *(entry.request_id, time.time()),
                *(self.realm, entry.project, entry.zone, entry.name, entry.request_id),
            ],
        )

    def end(self, request_id: str) -> None:
        """What was asked for there is known to be gone."""
        self._write(
            "UPDATE entries SET ended_at = ? WHERE request_id = ? AND ended_at IS NULL",
            [time.time(), request_id],
        )
        with self._lock:
            for key, seen in tuple(self._last.items()):
                if seen.request_id == request_id:
                    self._note_end(key)

    def end_of(self, status: QueuedResourceStatus) -> None:
        """It is known to be gone, ours or not."""
        self.end(status.labels.get(REQUEST_LABEL, ""))
        key = (status.project, status.zone, status.name)
        with self._lock:
            if key in self._last and self._last[key].born == _born(status):
                self._note_end(key)

    def use(self, status: QueuedResourceStatus) -> None:
        """It is being used now, which the idle limit counts from."""
        self._write(
            "UPDATE entries SET used_at = ? WHERE request_id = ?",
            [time.time(), status.labels.get(REQUEST_LABEL)],
        )

    def extend(self, request_id: str, expires_at: float | None) -> None:
        """Give it another end."""
        self._write("UPDATE entries SET expires_at = ? WHERE request_id = ?", [expires_at, request_id])

    def entries(self, *, ended: bool = False) -> tuple[Entry, ...]:
        """What of ours should still exist; with `ended` also what is gone."""
        names = [field.name for field in fields(Entry)]
        only = "" if ended else "AND ended_at IS NULL"
        query = f"SELECT {', '.join(names)} FROM entries WHERE realm = ? {only} ORDER BY asked_at"  # noqa: S608 - names of our own fields
        with self._file() as database, closing(database.execute(query, [self.realm])) as rows:
            return tuple(Entry(**dict(zip(names, row, strict=True))) for row in rows)

    def entry_of(self, status: QueuedResourceStatus) -> Entry | None:
        """The open entry of a queued resource, if it is ours."""
        return next((entry for entry in self.entries() if entry.is_of(status)), None)

    def find(self, project: str, zone: str, name: str) -> Entry | None:
        """The newest open entry of that name, if there is one."""
        mine = [e for e in self.entries() if (e.project, e.zone, e.name) == (project, zone, name)]
        return mine[-1] if mine else None

    def zones(self, project: str, name: str) -> tuple[str, ...]:
        """Where queued resources of ours of that name should still exist, the newest first."""
        mine = [e.zone for e in reversed(self.entries()) if (e.project, e.name) == (project, name)]
        return tuple(dict.fromkeys(mine))

    def observe(self, statuses: Iterable[QueuedResourceStatus]) -> tuple[QueuedResourceStatus, ...]:
        """Remember changes of state, and give each status since when it is in its state."""
        return tuple(self._observe(status) for status in statuses)

    def timeline(self, status: QueuedResourceStatus) -> tuple[StateChange, ...]:
        """Every state it was seen in, oldest first."""
        query = (
            "SELECT state, initiator, at FROM changes WHERE realm = ? AND project = ? AND zone = ? "
            "AND name = ? AND born = ? ORDER BY rowid"  # as they were seen; no clock has a say in it
        )
        key = [self.realm, status.project, status.zone, status.name, _born(status)]
        with self._file() as database, closing(database.execute(query, key)) as rows:
            return tuple(StateChange(s, i, datetime.fromtimestamp(at, UTC)) for s, i, at in rows)

    def close(self) -> None:
        """Close the file; calling it again does nothing."""
        with self._lock:
            if self._open is not None:
                self._open.close()
            self._open = None

    @contextmanager
    def _file(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._telling():
            if self._open is None:
                raise UnavailableError.of_closed()
            yield self._open

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise LedgerError(
                f"The ledger of what was created, {self._path}, cannot be read or written: {error}.",
                fix="See to its disk and its permissions. A damaged one can be moved away; what it held is then "
                "found with list() alone.",
            ) from error

    def _observe(self, status: QueuedResourceStatus) -> QueuedResourceStatus:
        key, born = (status.project, status.zone, status.name), _born(status)
        with self._lock:
            request_id = status.labels.get(REQUEST_LABEL)
            last = self._last.get(key)
            if last is None or last.born != born:
                past = self.timeline(status)
                last = _Seen(born, past[-1].state, past[-1].at, request_id) if past else None
            if last is None or last.state != status.state:
                now = datetime.now(UTC)
                # The service's clock may be ahead of this one; nothing has begun in the future.
                began = min(status.since or now, now) if last is None else now
                self._note_change(*key, born, status.state, status.state_initiator, began)
                last = _Seen(born, status.state, began, request_id)
            self._last[key] = last
        return replace(status, since=last.since)

    def _note_end(self, key: tuple[str, str, str]) -> None:
        self._note_change(*key, self._last.pop(key).born, "GONE", "", datetime.now(UTC))

    def _note_change(
        self, project: str, zone: str, name: str, born: float, state: str, initiator: str, at: datetime
    ) -> None:
        values = [self.realm, project, zone, name, born, state, initiator, at.timestamp()]
        self._write("INSERT INTO changes VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)

    def _write(self, statement: str, values: list[object]) -> None:
        with self._file() as database:
            database.execute(statement, values)


def _add_missing_columns(database: sqlite3.Connection) -> None:
    """Bring a file of an earlier version up to date; whoever comes at the same time waits and finds it done."""
    if "job" in _columns(database):
        return
    database.execute("BEGIN IMMEDIATE")
    try:
        if "job" not in _columns(database):
            database.execute("ALTER TABLE entries ADD COLUMN job TEXT DEFAULT ''")
    finally:
        database.execute("COMMIT")


def _columns(database: sqlite3.Connection) -> set[str]:
    with closing(database.execute("PRAGMA table_info(entries)")) as rows:
        return {row[1] for row in rows}


def _born(status: QueuedResourceStatus) -> float:
    """Tells one queued resource from an earlier one of the same name."""
    return status.create_time.timestamp() if status.create_time else 0.0
