"""A live handle on a job, from any machine that can reach its store."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from multislice_nb.cloud.times import parse_duration
from multislice_nb.errors import FailedPreconditionError, InvalidRequestError, NotFoundError, WaitTimeoutError
from multislice_nb.jobs import layout, slices
from multislice_nb.jobs.error_lines import ERRORS
from multislice_nb.jobs.gang import Gang
from multislice_nb.jobs.links import cloud_logging
from multislice_nb.jobs.logs import read_logs, search_logs
from multislice_nb.jobs.manifest import jobset
from multislice_nb.jobs.record import JobSpec
from multislice_nb.jobs.status import read_status
from multislice_nb.jobs.store import inside

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from datetime import timedelta

    from multislice_nb.cloud import Cloud
    from multislice_nb.jobs.logs import LogLine
    from multislice_nb.jobs.manifest import Manifest
    from multislice_nb.jobs.status import JobStatus
    from multislice_nb.jobs.store import Store

__all__ = ["Job"]

_PAUSE, _NEAR_PAUSE = 5.0, 0.25


class Job:
    """One job: its status, logs and results; cancel it, run it again, remove it.

    Args:
        store: Where it is.
        name: Its name.
        cloud: The connection through which its queued resource is seen; made when it is needed if None.

    Attributes:
        submitted: What was asked for first.

    Raises:
        NotFoundError: There is no such job.
    """

    def __init__(self, store: Store, name: str, *, cloud: Cloud | None = None) -> None:
        document = store.read_json(f"{layout.job_folder(name)}/{layout.JOB}")
        if document is None:
            raise NotFoundError(
                f"There is no job {name} in {store.url}.",
                fix="`job list` shows those there are.",
            )
        self.store = store
        self.submitted = JobSpec.from_json(document)
        self._cloud = cloud

    @property
    def name(self) -> str:
        """Its name."""
        return self.submitted.name

    @property
    def spec(self) -> JobSpec:
        """What its newest run was asked to do."""
        document = self._run_store().read_json(layout.JOB)
        return JobSpec.from_json(document) if document else self.submitted

    @property
    def run(self) -> int:
        """Its newest run."""
        names = self.store.list(f"{layout.job_folder(self.name)}/runs")
        return max((int(name) for name in names if name.isdigit()), default=1)

    @property
    def cloud(self) -> Cloud:
        """The connection to the project and zone of its queued resource."""
        self._cloud = slices.connection(self._cloud, self._run_document())
        return self._cloud

    @property
    def checkpoints(self) -> str:
        """URL of its checkpoints, which all runs share."""
        return self.store.object_url(f"{layout.job_folder(self.name)}/checkpoints")

    def status(self) -> JobStatus:
        """How it is now."""
        # In this order: what is gone now although it was created before is gone for good.
        run = self.run
        document = self._run_document(run)
        state, error = self._queued_resource(document)
        return read_status(self.store, self.spec, run, document, state, error)

    def wait(
        self,
        *,
        timeout: str | float | timedelta | None = None,
        progress: Callable[[JobStatus], object] | None = None,
        resume: bool = True,
    ) -> JobStatus:
        """Wait until it has ended and its slices are gone, and see to both where nobody else does.

        Args:
            timeout: How long, in seconds or as `2h`; the job goes on when it passes.
            progress: Called with every status.
            resume: Run it again when it was suspended: Cloud TPU repairs slices that are several, and gives
                up one that was alone when it is preempted.

        Raises:
            WaitTimeoutError: The time is over.
        """
        limit = None if timeout is None else time.monotonic() + parse_duration(timeout).total_seconds()
        while True:
            status = self.tend()
            if progress is not None:
                progress(status)
            if status.is_cleaned_up:
                if not (resume and self._suspended(status.run)):
                    return status
                # Whoever else waits for it may be first.
                self._launch(self.spec, status.run + 1)
            if limit is not None and time.monotonic() > limit:
                raise WaitTimeoutError(
                    f"Job {self.name} is still {status.state} after {timeout}.",
                    fix="It goes on by itself; look again with status().",
                )
            time.sleep(_NEAR_PAUSE if self.store.is_near else _PAUSE)

    def tend(self) -> JobStatus:
        """Do what the workers cannot: end a run whose slices will not come back, delete what is left of one.

        Called by `wait`, and by `multislice_nb.jobs.list()` for every job.
        """
        status = self.status()
        if not status.is_over or not self._run_document(status.run):  # over, or not asked for yet
            return status
        here = self._run_store(status.run)
        gang = Gang(here, self.spec)
        # Where the workers said so already, that counts.
        gang.end(status.state, status.reason, queued_resource=status.queued_resource)
        end = here.read_json(layout.END) or {}
        grace = self.spec.limits.final_grace + 60.0
        nobody = status.queued_resource in {"FAILED", "SUSPENDED"}
        if status.queued_resource and (nobody or time.time() - float(end.get("time", 0.0)) > grace):
            self._delete_queued_resource(status.run, wait=False)
        return self.status()

    def logs(
        self,
        *,
        ranks: Collection[int] | None = None,
        attempt: int | None = None,
        follow: bool = False,
        supervisor: bool = False,
        errors: bool = False,
    ) -> Iterator[LogLine]:
        """Lines of its newest run's logs, in order of time.

        Args:
            ranks: Of these workers; all when None.
            attempt: Of this attempt; all when None.
            follow: Go on with what comes until the run has ended.
            supervisor: What the supervisors themselves logged, instead of the command.
            errors: Only lines that look like errors.

        Raises:
            InvalidRequestError: There is no such worker.
        """
        spec = self.spec
        _require_ranks(spec, ranks)

        def ended() -> bool:
            status = self.tend()
            finals = self._run_store().list("finals")
            return status.is_over and (not status.queued_resource or len(finals) >= spec.workers)

        pause = _NEAR_PAUSE if self.store.is_near else 2.0
        lines = read_logs(
            self._run_store(),
            spec,
            ranks=ranks,
            attempt=attempt,
            follow=follow,
            ended=ended,
            pause=pause,
            supervisor=supervisor,
        )
        return (line for line in lines if not errors or re.search(ERRORS, line.text))

    def errors(self, *, attempt: int | None = None) -> list[LogLine]:
        """Lines that look like errors, of all workers, the first in time first."""
        return list(self.logs(attempt=attempt, errors=True))

    def search(
        self, pattern: str, *, ranks: Collection[int] | None = None, attempt: int | None = None
    ) -> list[LogLine]:
        """Lines of all workers that match a regular expression, the first in time first.

        Raises:
            InvalidRequestError: There is no such worker.
        """
        _require_ranks(self.spec, ranks)
        return search_logs(self._run_store(), self.spec, pattern, ranks=ranks, attempt=attempt)

    def cancel(self, *, reason: str = "it was cancelled") -> Self:
        """End it: the command is ended on all workers, logs and results are kept, the slices are deleted.

        Cancelling what has ended does nothing but see to what is left of it.
        """
        run = self.run
        state, _ = self._queued_resource(self._run_document(run))
        Gang(self._run_store(run), self.spec).end("cancelled", reason)
        if state != "ACTIVE":  # no worker is there who could see to it
            self._delete_queued_resource(run, wait=False)
        return self

    def ending(self) -> str:
        """What becomes of it after it was cancelled, in a sentence."""
        end = self._run_store().read_json(layout.END) or {}
        if end.get("outcome") == "cancelled":
            return f"Job {self.name} ends; its logs and results are kept, its slices are deleted."
        return f"Job {self.name} has {end.get('outcome')} already."

    def results(self, target: str | Path) -> list[Path]:
        """Copy its results to a folder, one folder for each worker.

        Returns:
            The files.
        """
        base = f"{layout.job_folder(self.name)}/results"
        files = []
        for name in self.store.walk(base):
            path = inside(Path(target), name)
            self.store.download(f"{base}/{name}", path)
            files.append(path)
        return files

    def retry(self, *, node_count: int | None = None) -> Self:
        """Run it again on new slices; checkpoints and results stay, so that it goes on where it was.

        Args:
            node_count: On that many slices; as many as before when None. Checkpoints made with
                `jobs.Checkpoints` and `jobs.data.batches` can be gone on from with any number that divides
                the batch.

        Raises:
            FailedPreconditionError: It has not ended, or somebody else runs it again just now.
        """
        status = self.tend()
        if not status.is_over:
            raise FailedPreconditionError(
                f"Job {self.name} is {status.state}, and only one that has ended can be run again.",
                fix="Wait for its end, or cancel it first.",
            )
        if status.queued_resource:
            self._delete_queued_resource(status.run, wait=True)
        spec = self.spec if node_count is None else replace(self.spec, node_count=node_count)
        if not self._launch(spec, status.run + 1):
            raise FailedPreconditionError(
                f"Job {self.name} is run again already: somebody else has started run {status.run + 1}.",
                fix="Follow that one, or cancel it first.",
            )
        return self

    def remove(self) -> None:
        """Remove its record, logs, results and checkpoints.

        Raises:
            FailedPreconditionError: It runs, or its slices are not gone.
        """
        status = self.tend()
        if not status.is_cleaned_up:
            raise FailedPreconditionError(
                f"Job {self.name} cannot be removed: it is {status.state}, and its queued resource "
                f"{status.queued_resource or 'gone'}.",
                fix="Cancel it and wait until its slices are gone.",
            )
        self.store.remove(layout.job_folder(self.name))

    def log_link(self) -> str:
        """The page of Cloud Logging with what the workers' VMs logged; empty with the emulator."""
        end = self._run_store().read_json(layout.END)
        return cloud_logging(self._run_document(), float(end["time"]) if end else None)

    def jobset(self, image: str, **options: Any) -> Manifest:
        """The same job as a JobSet manifest for GKE, which goes on from its checkpoints; see `jobs.jobset`."""
        reachable = None if self.store.is_near else self.checkpoints
        return jobset(self.spec, image, **{"checkpoints": reachable, **options})

    def _suspended(self, run: int) -> bool:
        """Whether a run ended since its queued resource was suspended, and may be followed by another."""
        end = self.store.read_json(f"{layout.run_folder(self.name, run)}/{layout.END}") or {}
        most = self.submitted.limits.max_repairs
        suspended = end.get("queued_resource") in {"SUSPENDED", "SUSPENDING"}
        return suspended and (most is None or run <= most)

    def _launch(self, spec: JobSpec, run: int) -> bool:
        from multislice_nb.jobs.submitting import launch

        return launch(self.cloud, self.store, spec, run)

    def _run_store(self, run: int | None = None) -> Store:
        return self.store.child(layout.run_folder(self.name, run or self.run))

    def _run_document(self, run: int | None = None) -> dict[str, object]:
        return self._run_store(run).read_json(layout.RUN) or {}

    def _queued_resource(self, document: Mapping[str, object]) -> tuple[str, str]:
        """Its queued resource's state and error; empty where it is gone, `ELSEWHERE` where it cannot be seen."""
        return slices.state(lambda: self.cloud, document) if document else ("", "")

    def _delete_queued_resource(self, run: int | None = None, *, wait: bool) -> None:
        """Delete that of a run; of the newest when None."""
        document = self._run_document(run)
        if document:
            slices.delete(lambda: self.cloud, document, wait=wait)

    def __repr__(self) -> str:
        return f"<Job {self.name}>"

    def __str__(self) -> str:
        return str(self.status())

    def _repr_html_(self) -> str:
        return self.status()._repr_html_()


def _require_ranks(spec: JobSpec, ranks: Collection[int] | None) -> None:
    strange = sorted(rank for rank in ranks or () if not 0 <= rank < spec.workers)
    if strange:
        raise InvalidRequestError(
            f"Job {spec.name} has no rank {strange[0]}.", fix=f"Its ranks are 0 to {spec.workers - 1}."
        )
