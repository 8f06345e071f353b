"""Ways to look at a job in a test."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from multislice_nb.jobs import Job, JobStatus


def told(job: Job) -> str:
    """All that is known of a job, for a failed assertion."""
    lines = [str(job.status()), *map(str, list(job.logs())[-30:])]
    base = f"jobs/{job.name}/runs/{job.run:04d}/logs"
    for name in job.store.walk(base):
        if "/boot-" in name and name.endswith(".log"):
            lines.append(f"--- {name}\n{(job.store.read(f'{base}/{name}') or b'').decode()}")
    return "\n".join(lines)


def until(job: Job, condition: Callable[[JobStatus], bool], seconds: float = 60.0) -> JobStatus:
    """Wait for a condition of a job's status."""
    limit = time.monotonic() + seconds
    while not condition(status := job.status()):
        assert time.monotonic() < limit, told(job)
        time.sleep(0.1)
    return status
