"""What a supervisor knows and has at hand; its parts share it."""

from __future__ import annotations

import logging
import os
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from multislice_nb.jobs.gang import Gang
from multislice_nb.jobs.layout import job_folder, run_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from multislice_nb.jobs.beat import Beat, Watch
    from multislice_nb.jobs.machine import Machine
    from multislice_nb.jobs.record import JobSpec
    from multislice_nb.jobs.store import Store
    from multislice_nb.jobs.tpu_api import OwnQueuedResource

__all__ = ["Signals", "Worker", "log", "patiently"]

T = TypeVar("T")

log = logging.getLogger("multislice_nb.jobs")


@dataclass
class Signals:
    """What the machine told this process."""

    terminated: bool = False


@dataclass(kw_only=True)
class Worker:
    """One worker of a run.

    Attributes:
        job: What was asked for.
        run: Which submission.
        store: The whole store.
        machine: This worker's place.
        own: Its queued resource.
        beat: Its sign of life.
        watch: Its look at the others.
        boot: Names this start of the supervisor.
        deadline: When the time limit of the run is over, in seconds since the epoch.
        environment: What every command finds in its environment besides the gang.
        masks: Values that no log may show.
    """

    job: JobSpec
    run: int
    store: Store
    machine: Machine
    own: OwnQueuedResource
    beat: Beat
    watch: Watch
    boot: str
    deadline: float
    signals: Signals
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    masks: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        self.gang = Gang(self.store.child(run_folder(self.job.name, self.run)), self.job)
        self.poll = self.job.limits.heartbeat / 2

    @property
    def rank(self) -> int:
        """JAX's process id: worker in slice + slice id * workers per slice."""
        return rank_of(self.job, self.machine)

    @property
    def place(self) -> str:
        """As people read it."""
        return place(self.job, self.rank)

    @property
    def folder(self) -> Path:
        """Where this run keeps its files on this machine."""
        return local_folder(self.job.name, self.run)

    @property
    def results(self) -> Path:
        """What the command wants kept."""
        return self.folder / "results"

    @property
    def late(self) -> bool:
        """Whether the time limit is over."""
        return time.time() > self.deadline

    def upload_results(self) -> None:
        """Copy what is in the results folder to the store.

        Raises:
            OSError: The store does not answer.
        """
        base = f"{job_folder(self.job.name)}/results/rank-{self.rank:05d}"
        for path in sorted(self.results.rglob("*")):
            if path.is_file() and not path.is_symlink():
                self.store.upload(path, f"{base}/{path.relative_to(self.results).as_posix()}")


def rank_of(job: JobSpec, machine: Machine) -> int:
    """A machine's rank in a job."""
    return machine.worker_id + machine.slice_id * job.workers_per_slice


def place(job: JobSpec, rank: int) -> str:
    """As in `rank 3 (slice 1, worker 1)`."""
    slice_id, worker_id = divmod(rank, job.workers_per_slice)
    return f"rank {rank} (slice {slice_id}, worker {worker_id})"


def local_folder(name: str, run: int) -> Path:
    """Where a run keeps its files on a worker."""
    return Path.home() / ".multislice_nb" / "jobs" / name / f"{run:04d}"


def new_boot() -> str:
    """A name for a start of the supervisor, in order of time."""
    return f"{int(time.time()):011d}-{uuid.uuid4().hex[:8]}-{os.getpid()}"


def patiently(
    doing: str, work: Callable[[], T], limit: float, passes: Callable[[OSError], bool] = lambda _: True
) -> T:
    """Do something that an outage makes fail for a while.

    Args:
        doing: What, in words.
        work: Does it.
        limit: Until when it is tried again, by the monotonic clock.
        passes: Whether an error is one that may be gone later.

    Raises:
        OSError: The first error that stays, or the last one.
    """
    pause = 0.5
    while True:
        try:
            return work()
        except OSError as error:
            if time.monotonic() > limit or not passes(error):
                raise
            log.warning("%s failed: %s", doing, error)
        time.sleep(pause)
        pause = min(2 * pause, 30.0)
