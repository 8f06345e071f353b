"""Whole jobs whose store is a bucket."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from multislice_nb import jobs
from multislice_nb.errors import InvalidRequestError
from multislice_nb.jobs.submitting import emulator_limits
from tests.jobs.answers import SECRET, VERSION, answering
from tests.jobs.buckets import refusing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from multislice_nb.cloud import Cloud


@pytest.fixture
def secret_manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A Secret Manager of this test's own."""
    with answering() as server:
        monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_SECRETMANAGER", f"http://{server.host}/")
        yield


def test_a_job_in_a_bucket_runs_from_submit_to_results(
    submit: Callable[..., jobs.Job], bucket: str, secret_manager: None, tmp_path: Path, look: Any
) -> None:
    """Code, control, log and results go through the bucket; the secret reaches the command and nothing else."""
    (tmp_path / "work.py").write_text(
        "import os, pathlib\n"
        "print('token', os.environ['TOKEN'], len(os.environ['TOKEN']))\n"
        "folder = pathlib.Path(os.environ['MULTISLICE_NB_RESULTS'])\n"
        "(folder / 'rank.txt').write_text(os.environ['MULTISLICE_NB_RANK'])\n"
        "assert os.environ['MULTISLICE_NB_CHECKPOINTS'].startswith('gs://bucket/')\n"
    )
    job = submit(
        "buckets", "python3 work.py", folder=tmp_path, store=f"{bucket}/jobs", secrets={"TOKEN": VERSION}
    )
    lines = [line.text for line in job.logs(follow=True)]
    look.done(job, "succeeded")
    assert lines == [f"token {'*' * len(SECRET)} {len(SECRET)}"] * 2
    files = job.results(tmp_path / "results")
    assert [path.read_text() for path in files] == ["0", "1"]
    for name in job.store.walk():
        assert SECRET.encode() not in (job.store.read(name) or b""), name
    job.remove()
    assert job.store.list("jobs") == []


def test_a_store_that_the_workers_cannot_reach_is_refused(
    cloud: Cloud, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bucket of Google Cloud is no place for the emulator's workers, a local one none for real workers."""
    store = jobs.Store(f"{bucket}/jobs")
    with monkeypatch.context() as google:
        google.delenv("STORAGE_EMULATOR_HOST")
        with pytest.raises(InvalidRequestError, match="no credentials for it"):
            jobs.submit("far", "true", accelerator_type="v4-8", store=store, cloud=cloud)
    monkeypatch.setattr(type(cloud), "is_emulator", False)
    with pytest.raises(InvalidRequestError, match="cannot reach"):
        jobs.submit("near", "true", accelerator_type="v4-8", store=store, cloud=cloud)


@pytest.mark.timeout(300)
def test_a_save_that_failed_is_gone_on_from_and_one_too_many_ends_the_run(
    submit: Callable[..., jobs.Job], bucket: str, look: Any
) -> None:
    """Nobody waits for a checkpoint that cannot become whole: not its worker, which is named, and not the others."""
    train = "python3 -m multislice_nb.jobs.reference.train --steps 500 --every 2 --pause 0.2"

    def saved(_: object) -> bool:
        return any(name.endswith("commit_success.txt") for name in job.store.walk("jobs/denied/checkpoints"))

    with refusing("ocdbt.process_1"):
        limits = replace(emulator_limits(), max_restarts=1)
        job = submit("denied", train, store=f"{bucket}/denied", limits=limits)
        look.until(job, lambda status: bool(status.attempts and status.attempts[0].ended), 120)
        assert not saved(job)
    look.until(job, saved, 120)
    with refusing("ocdbt.process_1"):
        status = look.done(job, "failed", 120)
    assert [attempt.kind for attempt in status.attempts] == ["failure", "failure"], look.told(job)
    assert status.reason.startswith("failed 2 times, last: rank 1 (slice 1, worker 0)"), look.told(job)
    for number, attempt in enumerate(status.attempts, 1):
        assert "rank 1 (slice 1, worker 0)" in attempt.reason, look.told(job)
        said = look.texts(job, ranks=[1], attempt=number)
        assert any(
            re.search("SaveError: Checkpoint .* could not be saved by process 1", text) for text in said
        )
        assert any("storage.objects.create is missing" in text or "403" in text for text in said), said
