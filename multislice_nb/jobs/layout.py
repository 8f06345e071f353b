"""What is where in a store.

```
packages/<sha256>.tar.gz             code, by content
packages/multislice_nb-<hash>.zip    this package, which the workers run
jobs/NAME/job.json                   what was asked for first; written once
jobs/NAME/results/…                  what the command left in its results folder, by rank
jobs/NAME/checkpoints/…              shared by all workers, all attempts and all runs
jobs/NAME/runs/0001/…                one submission; `retry` makes the next
    run.json                             its queued resource, and since when
    job.json                             what was asked for this time
    control/attempt-0001.json            the leader: these boots form a gang, here is its coordinator
    control/stop-0001.json               the first who saw that this attempt must end, and why
    control/verdict-0001.json            the leader: what that end counts as
    control/reset-0001-1.json            a silent worker made somebody reset all slices
    control/began.json                   when the first worker came up
    control/end.json                     how it all ended; written once, by whoever sees first that it has
    beats/00000.json                     each worker's sign of life
    exits/0001-00000.json                what became of the command on each worker
    finals/00000.json                    this worker's logs and results are here
    logs/00000/0001/000000.log           the command's output in parts, with times in 000000.json
    logs/00000/boot-…/000000.log         the supervisor's own
```
"""

from __future__ import annotations

import re

__all__ = [
    "BEGAN",
    "END",
    "JOB",
    "NAME",
    "attempt_key",
    "beat_key",
    "exit_key",
    "final_key",
    "job_folder",
    "log_folder",
    "package_key",
    "reset_key",
    "run_folder",
    "stop_key",
    "verdict_key",
]

NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
"""Names of jobs: they name queued resources and nodes too."""

JOB = "job.json"
RUN = "run.json"
BEGAN = "control/began.json"
END = "control/end.json"


def package_key(name: str) -> str:
    """An archive of code."""
    return f"packages/{name}"


def job_folder(name: str) -> str:
    """A job."""
    return f"jobs/{name}"


def run_folder(name: str, run: int) -> str:
    """One submission of a job."""
    return f"jobs/{name}/runs/{run:04d}"


def attempt_key(attempt: int) -> str:
    """Who forms the gang of an attempt."""
    return f"control/attempt-{attempt:04d}.json"


def stop_key(attempt: int) -> str:
    """Why an attempt must end."""
    return f"control/stop-{attempt:04d}.json"


def reset_key(attempt: int, number: int) -> str:
    """That all slices were reset after an attempt, since a worker was silent."""
    return f"control/reset-{attempt:04d}-{number}.json"


def verdict_key(attempt: int) -> str:
    """What the end of an attempt counts as."""
    return f"control/verdict-{attempt:04d}.json"


def beat_key(rank: int) -> str:
    """A worker's sign of life."""
    return f"beats/{rank:05d}.json"


def exit_key(attempt: int, rank: int) -> str:
    """What became of a worker's command in an attempt."""
    return f"exits/{attempt:04d}-{rank:05d}.json"


def final_key(rank: int) -> str:
    """A worker has nothing left to upload."""
    return f"finals/{rank:05d}.json"


def log_folder(rank: int, attempt: int) -> str:
    """A worker's log of an attempt."""
    return f"logs/{rank:05d}/{attempt:04d}"
