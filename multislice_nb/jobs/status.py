"""What became of a job, put together from the store's documents and the Cloud TPU API."""

from __future__ import annotations

import html
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from multislice_nb.cloud.display import html_table, text_table
from multislice_nb.cloud.times import short
from multislice_nb.jobs import layout
from multislice_nb.jobs.gang import Gang
from multislice_nb.jobs.links import cloud_logging
from multislice_nb.jobs.slices import ELSEWHERE
from multislice_nb.jobs.worker import place

if TYPE_CHECKING:
    from collections.abc import Mapping

    from multislice_nb.jobs.record import JobSpec
    from multislice_nb.jobs.store import Store

__all__ = ["OUTCOMES", "AttemptStatus", "JobStatus", "WorkerStatus", "read_status"]

_CREATION_SECONDS = 300.0
_GONE = "its queued resource is gone, and no worker said why; perhaps none could read the store"

OUTCOMES = ("succeeded", "failed", "timed out", "cancelled")
"""How a run can end."""


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """One worker as its last sign of life shows it.

    Attributes:
        rank: Its rank.
        place: Rank, slice and worker in words.
        phase: preparing, waiting, running, ended or ending; empty where it was never heard of.
        age: Seconds since its last sign of life, by this machine's clock.
    """

    rank: int
    place: str
    phase: str
    age: float | None

    @property
    def heard(self) -> str:
        """When it was heard of last."""
        return "" if self.age is None else f"{short(self.age)} ago"

    def __str__(self) -> str:
        return f"{self.place:<28} {', '.join(filter(None, (self.phase or 'not heard of', self.heard)))}"


@dataclass(frozen=True, slots=True)
class AttemptStatus:
    """One attempt.

    Attributes:
        number: From 1.
        started: When its gang was formed, in seconds since the epoch.
        ended: When it was stopped, or None.
        kind: `failure`, `repair`, `success`, or empty while it runs or is not judged yet.
        reason: Why it ended.
        exits: What became of the command, by rank.
    """

    number: int
    started: float
    ended: float | None
    kind: str
    reason: str
    exits: dict[int, dict[str, Any]] = field(default_factory=dict, repr=False)

    @property
    def first_failure(self) -> dict[str, Any] | None:
        """Of the commands that failed by themselves, the one that did so first."""
        failed = [e for e in self.exits.values() if e["by_itself"] and e["code"] != 0]

        def when(left: dict[str, Any]) -> float:
            error = left.get("first_error")
            return float(error["time"] if error else left["time"])

        return min(failed, key=when, default=None)

    def row(self) -> tuple[str, ...]:
        """Cells of a table: attempt, duration, counts as, reason."""
        lasted = short((self.ended or time.time()) - self.started)
        running = "running" if self.ended is None else "ended"
        return str(self.number), lasted, self.kind or running, self.reason

    @property
    def first_error(self) -> str:
        """The line that looks like an error on the worker that failed first; empty where there is none."""
        error = (self.first_failure or {}).get("first_error")
        return str(error["line"]) if error else ""


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job as it is.

    Attributes:
        name: Its name.
        run: Which submission.
        state: queued, starting, running, repairing, or one of `OUTCOMES`; unknown in a list, where it could not be
            looked at.
        reason: Why it ended, or what it waits for.
        queued_resource: The queued resource's state; empty where it is gone, `elsewhere` while it is on an
            emulator that this process does not talk to.
        submitted: When, in seconds since the epoch.
        ended: When, or None.
        attempts: All attempts, oldest first.
        workers: All workers, by rank.
        shape: As `2 x v4-16`.
        log_link: The page of Cloud Logging with what its VMs logged; empty with the emulator.
    """

    name: str
    run: int
    state: str
    reason: str
    queued_resource: str
    submitted: float
    ended: float | None
    attempts: tuple[AttemptStatus, ...] = field(repr=False)
    workers: tuple[WorkerStatus, ...] = field(repr=False)
    shape: str = ""
    log_link: str = ""

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.state in OUTCOMES

    @property
    def is_cleaned_up(self) -> bool:
        """Whether it has ended and nothing of it is left that costs anything."""
        return self.is_over and not self.queued_resource

    @property
    def lasted(self) -> str:
        """How long it has run or ran, its wait for capacity included, in words."""
        return short((self.ended or time.time()) - self.submitted) if self.submitted else "-"

    def row(self) -> tuple[str, ...]:
        """Cells of a table: job, run, shape, state, for, attempts, queued resource, reason."""
        resource = self.queued_resource or "-"
        return (
            self.name,
            str(self.run),
            self.shape,
            self.state,
            self.lasted,
            str(len(self.attempts)),
            resource,
            self.reason,
        )

    def __str__(self) -> str:
        run = f" · run {self.run}" if self.run > 1 else ""
        first = f"{self.name}   {self.shape}{run} · {self.state} · {self.lasted}"
        lines = [f"{first} · {self.reason}" if self.reason else first, *self._attempt_lines()]
        if not self.is_over and self.state != "queued":
            lines += [f"  {worker}" for worker in self.workers]
        elif self.is_over and self.queued_resource:
            lines.append(f"  its queued resource is still {self.queued_resource}")
        if self.log_link:
            lines.append(f"  Cloud Logging: {self.log_link}")
        return "\n".join(lines)

    def _attempt_lines(self) -> list[str]:
        if not self.attempts:
            return []
        rows = [("  attempt", *attempt.row()) for attempt in self.attempts]
        lines = []
        for attempt, line in zip(self.attempts, text_table(("",) * 5, rows).splitlines()[1:], strict=True):
            lines.append(line)
            if attempt.first_error not in attempt.reason:
                lines.append(f"      first error: {attempt.first_error}")
        return lines

    def _repr_html_(self) -> str:
        header = ("job", "run", "slices", "state", "for", "attempts", "queued resource", "reason")
        parts = [html_table(header, [self.row()])]
        if self.attempts:
            rows = [(*attempt.row(), attempt.first_error) for attempt in self.attempts]
            caption = f"Attempts of {self.name}"
            parts.append(
                html_table(("attempt", "lasted", "counts as", "reason", "first error"), rows, caption=caption)
            )
        if not self.is_over and self.state != "queued":
            workers = [
                (worker.place, worker.phase or "not heard of", worker.heard) for worker in self.workers
            ]
            parts.append(html_table(("worker", "phase", "heard of"), workers))
        if self.log_link:
            parts.append(f'<p><a href="{html.escape(self.log_link)}" target="_blank">Cloud Logging</a></p>')
        return "".join(parts)


def read_status(
    store: Store, job: JobSpec, run: int, document: Mapping[str, Any], queued_resource: str, error: str = ""
) -> JobStatus:
    """Read all documents of a run.

    Args:
        store: The whole store.
        job: The job.
        run: Which submission.
        document: The run's own, as it was before its queued resource was looked at.
        queued_resource: State of its queued resource; empty where there is none any more, `ELSEWHERE` where
            that cannot be seen.
        error: Why that failed, if it did.
    """
    here = store.child(layout.run_folder(job.name, run))
    gang = Gang(here, job)
    names = gang.names()
    end = here.read_json(layout.END) if layout.END in names else None
    if end is not None and queued_resource == ELSEWHERE:
        queued_resource = ""  # its workers delete it, and nobody here can do more
    submitted = float(document.get("time", 0.0))
    attempts = _attempts(gang, names, end)
    asking = "created" not in document and layout.BEGAN not in names
    young = asking and time.time() - submitted < _CREATION_SECONDS
    state, reason = _state(end, attempts, queued_resource, error, young=young)
    shape = f"{job.node_count} x {job.accelerator_type}" if job.node_count > 1 else job.accelerator_type
    return JobStatus(
        name=job.name,
        run=run,
        state=state,
        reason=_one_line(reason),
        queued_resource=queued_resource,
        submitted=submitted,
        ended=float(end["time"]) if end else None,
        attempts=attempts,
        workers=tuple(_worker(here, job, rank) for rank in range(job.workers)),
        shape=shape,
        log_link=cloud_logging(document, float(end["time"]) if end else None),
    )


def _attempts(gang: Gang, names: set[str], end: dict[str, Any] | None) -> tuple[AttemptStatus, ...]:
    found = []
    last = Gang.latest(names)
    for number in range(1, last + 1):
        attempt = gang.attempt(number)
        stop = gang.store.read_json(layout.stop_key(number)) or {}
        verdict = gang.store.read_json(layout.verdict_key(number)) or {}
        kind, reason, ended = str(verdict.get("kind", "")), str(stop.get("reason", "")), stop.get("time")
        if kind == "repair" and stop.get("cause") == "failure":
            reason = f"{reason}, when a slice was lost"
        if number == last and end is not None and not kind:
            kind = "success" if end["outcome"] == "succeeded" else str(end["outcome"])
            reason, ended = reason or str(end["reason"]), ended or end["time"]
        started = attempt.time if attempt else 0.0
        found.append(AttemptStatus(number, started, ended, kind, _one_line(reason), gang.exits(number)))
    return tuple(found)


def _one_line(reason: str) -> str:
    """A reason as a cell of a table has it: it may have a program's own words in it."""
    return " ".join(reason.split())


def _state(
    end: dict[str, Any] | None,
    attempts: tuple[AttemptStatus, ...],
    queued_resource: str,
    error: str,
    *,
    young: bool,
) -> tuple[str, str]:
    if end is not None:
        return str(end["outcome"]), str(end["reason"])
    if not queued_resource:  # whoever submits a young one may be about to ask for it
        return ("queued", "its queued resource is not there yet") if young else ("failed", _GONE)
    if queued_resource in {"FAILED", "SUSPENDED", "SUSPENDING"}:
        return "failed", f"its queued resource is {queued_resource}" + (f": {error}" if error else "")
    if not attempts:
        unseen = "its slices are on another emulator, which cannot be seen from here"
        waiting = ("queued", unseen if queued_resource == ELSEWHERE else f"queued resource {queued_resource}")
        return ("starting", "") if queued_resource == "ACTIVE" else waiting
    last = attempts[-1]
    if last.ended is None:
        return "running", f"attempt {last.number}"
    return "repairing", f"after attempt {last.number}: {last.reason}"


def _worker(here: Store, job: JobSpec, rank: int) -> WorkerStatus:
    beat = here.read_json(layout.beat_key(rank)) or {}
    age = max(0.0, time.time() - float(beat["time"])) if "time" in beat else None
    return WorkerStatus(rank, place(job, rank), str(beat.get("phase", "")), age)
