"""The distributed environment of a job's command: said explicitly at every attempt, never left to detection.

A command finds JAX's, libtpu's and PyTorch's own variables, and MULTISLICE_NB_* for anything else:

| variable | value |
|---|---|
| JAX_COORDINATOR_ADDRESS, JAX_COORDINATOR_BIND_ADDRESS | address:port of rank 0 |
| JAX_NUM_PROCESSES, JAX_PROCESS_ID | workers, rank |
| MEGASCALE_COORDINATOR_ADDRESS, MEGASCALE_NUM_SLICES, MEGASCALE_SLICE_ID | for several slices only |
| MASTER_ADDR, MASTER_PORT, WORLD_SIZE, RANK | as torchrun has them, one process on each worker |
| MULTISLICE_NB_RANK, …_WORKERS, …_SLICE_ID, …_SLICES, …_WORKER_ID, …_ATTEMPT, …_JOB, …_RUN | the same in our words |
| MULTISLICE_NB_CHECKPOINTS, …_RESULTS | URL of the shared checkpoints; a local folder that is uploaded at the end |

`initialize()` joins the gang with these. A bare `jax.distributed.initialize()` does too: it takes the address from
here, and the number of processes and its own from what every TPU VM tells of itself; these agree.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from multislice_nb.errors import CheckpointError, ConfigurationError, InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from multislice_nb.jobs.machine import Machine
    from multislice_nb.jobs.record import JobSpec

__all__ = ["FINAL_EXIT", "FIRST_PORT", "PREEMPTED_EXIT", "environment", "initialize"]

FIRST_PORT = 8476
"""The coordinator's first choice: the port that Cloud TPU's own firewall rule opens between workers."""

FINAL_EXIT = 2
"""Exit status that says: starting again would not change anything."""

PREEMPTED_EXIT = 75
"""Exit status of a command that saved its state on a preemption notice and wants to go on later (EX_TEMPFAIL)."""

_OURS = ("JAX_COORDINATOR_", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "JAX_PARTITION_INDEX", "MEGASCALE_")
# What of MEGASCALE_* is about this gang; the rest is the user's tuning and stays.
_STALE = {
    "MEGASCALE_COORDINATOR_ADDRESS",
    "MEGASCALE_NUM_SLICES",
    "MEGASCALE_SLICE_ID",
    "MEGASCALE_PORT",
}


def environment(
    job: JobSpec, machine: Machine, *, rank: int, attempt: int, coordinator: str, base: Mapping[str, str]
) -> dict[str, str]:
    """What a command finds in its environment, without the job's own variables.

    Args:
        job: The job.
        machine: This worker.
        rank: Its rank.
        attempt: Which attempt this is, from 1.
        coordinator: `address:port` of JAX's coordinator.
        base: The environment to start from; what it says of an earlier gang is dropped.
    """
    host, _, port = coordinator.rpartition(":")
    kept = {
        name: value
        for name, value in base.items()
        if name not in _STALE and not (name.startswith(_OURS) and not name.startswith("MEGASCALE_"))
    }
    numbers = {
        "RANK": rank,
        "WORKERS": job.workers,
        "SLICE_ID": machine.slice_id,
        "SLICES": job.node_count,
        "WORKER_ID": machine.worker_id,
        "ATTEMPT": attempt,
    }
    made = {
        **{f"MULTISLICE_NB_{name}": str(number) for name, number in numbers.items()},
        "MULTISLICE_NB_COORDINATOR_ADDRESS": coordinator,
        "MULTISLICE_NB_JOB": job.name,
        "JAX_COORDINATOR_ADDRESS": coordinator,
        "JAX_COORDINATOR_BIND_ADDRESS": coordinator,  # rank 0 listens there, and on no other network
        "JAX_NUM_PROCESSES": str(job.workers),
        "JAX_PROCESS_ID": str(rank),
        "MASTER_ADDR": host,
        "MASTER_PORT": port,
        "WORLD_SIZE": str(job.workers),
        "RANK": str(rank),
        # A stalled command is ended by SIGABRT first, and then says where every thread was.
        "PYTHONFAULTHANDLER": "1",
        "PYTHONUNBUFFERED": "1",
    }
    if job.node_count > 1:
        made["MEGASCALE_COORDINATOR_ADDRESS"] = f"{host}:{machine.megascale_port}"
        made["MEGASCALE_NUM_SLICES"] = str(job.node_count)
        made["MEGASCALE_SLICE_ID"] = str(machine.slice_id)
    return {**kept, **made}


def initialize(*, timeout: int = 600, heartbeat: int = 100) -> None:
    """Join this job's `jax.distributed`; outside a job, do nothing.

    From then on an exception that nobody catches ends this process at once. Otherwise JAX would wait at exit
    for the other processes, which wait for this one in a collective, for minutes. Where it is an error of this
    package that another start would meet again, the exit status says so, and the job ends.

    Args:
        timeout: Seconds in which all workers must have come.
        heartbeat: Seconds after which JAX takes a silent process for dead.
    """
    coordinator = os.environ.get("MULTISLICE_NB_COORDINATOR_ADDRESS")
    if coordinator is None:
        return
    import jax

    rank = int(os.environ["MULTISLICE_NB_RANK"])
    jax.distributed.initialize(
        coordinator_address=coordinator,
        num_processes=int(os.environ["MULTISLICE_NB_WORKERS"]),
        process_id=rank,
        cluster_detection_method="deactivate",
        initialization_timeout=timeout,
        heartbeat_timeout_seconds=heartbeat,
        coordinator_bind_address=coordinator if rank == 0 else None,
    )
    sys.excepthook = _end_at_once(sys.excepthook)


def _end_at_once(show: Callable[..., object]) -> Callable[..., None]:
    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        show(kind, error, trace)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_status_of(kind))

    return hook


def _status_of(kind: type[BaseException]) -> int:
    if kind is KeyboardInterrupt:
        return 130
    return FINAL_EXIT if issubclass(kind, (InvalidRequestError, ConfigurationError, CheckpointError)) else 1
