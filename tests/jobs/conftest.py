"""A connection to the session's emulator, faults at will, and jobs that are gone when a test ends."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from multislice_nb.cloud import Cloud


@pytest.fixture
def cloud(emulator_home: Path) -> Cloud:
    """A connection to the emulator, whatever this machine has configured."""
    import multislice_nb as ms

    return ms.connect(emulator=True)


@pytest.fixture
def fault(emulator_home: Path) -> Iterator[Callable[..., None]]:
    """Injects a fault of the emulator; all are taken back at the end."""
    from multislice_nb.emulator import daemon

    address = daemon.ensure_running(owner_pid=os.getpid())

    def inject(kind: str, **parameters: Any) -> None:
        daemon.call(address, "POST", "/emulator/v1/faults", {"kind": kind, **parameters})

    yield inject
    daemon.call(address, "DELETE", "/emulator/v1/faults")


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
