"""A connection to the session's emulator, faults at will, and jobs that are gone when a test ends."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.jobs.answers import answering
from tests.jobs.buckets import serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from multislice_nb.cloud import Cloud
    from multislice_nb.jobs import Job, JobStatus
    from tests.jobs.answers import Google


@pytest.fixture
def cloud(emulator_home: Path) -> Cloud:
    """A connection to the emulator, whatever this machine has configured."""
    import multislice_nb as ms

    return ms.connect(emulator=True)


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """A bucket of a Cloud Storage server of this module's own."""
    with serving() as url:
        yield url


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch) -> Iterator[Google]:
    """What this process takes for Google."""
    with answering() as server:
        monkeypatch.setenv("GCE_METADATA_HOST", server.host)
        monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_SECRETMANAGER", f"http://{server.host}/")
        monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU", f"http://{server.host}/")
        yield server


@pytest.fixture
def submit(cloud: Cloud, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Submits a job on two slices of one worker each, into a store of the test's own."""
    from multislice_nb import jobs

    made = []

    def submit_(name: str, command: str, **options: Any) -> jobs.Job:
        wanted = {
            "accelerator_type": "v4-8",
            "node_count": 2,
            "requirements": (),
            "store": tmp_path / "store",
        }
        job = jobs.submit(name, command, cloud=cloud, **{**wanted, **options})
        assert isinstance(job, jobs.Job)
        made.append(job)
        return job

    yield submit_
    for job in made:
        if job._run_document():  # it was not removed
            job._delete_queued_resource(wait=True)


class Look:
    """Ways to look at a job."""

    @staticmethod
    def texts(job: Job, **options: Any) -> list[str]:
        """The lines of its logs."""
        return [line.text for line in job.logs(**options)]

    @staticmethod
    def told(job: Job) -> str:
        """All that is known of it, for a failed assertion."""
        lines = [str(job.status()), *map(str, list(job.logs())[-30:])]
        base = f"jobs/{job.name}/runs/{job.run:04d}/logs"
        own = [name for name in job.store.walk(base) if "/boot-" in name and name.endswith(".log")]
        lines += [f"--- {name}\n{(job.store.read(f'{base}/{name}') or b'').decode()}" for name in own]
        return "\n".join(lines)

    def until(self, job: Job, condition: Callable[[JobStatus], bool], seconds: float = 60.0) -> JobStatus:
        """Wait for a condition of its status."""
        limit = time.monotonic() + seconds
        while not condition(status := job.status()):
            assert time.monotonic() < limit, self.told(job)
            time.sleep(0.1)
        return status

    def ready(self, job: Job, attempt: int = 1) -> None:
        """Wait until its command has said on two workers that it runs."""
        self.until(job, lambda _: self.texts(job, attempt=attempt).count("ready") == 2)

    def done(self, job: Job, state: str, seconds: float = 90.0) -> JobStatus:
        """Wait for its end and for that of its slices."""
        from multislice_nb.errors import NotFoundError

        status = job.wait(timeout=seconds)
        assert status.state == state, self.told(job)
        with pytest.raises(NotFoundError):
            job.cloud.get(job.name)
        return status


@pytest.fixture
def look() -> Look:
    """Looks at jobs."""
    return Look()
