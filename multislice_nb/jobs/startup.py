"""The startup script of a job's workers: it runs at every boot, which is how a repaired slice goes on."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from multislice_nb.jobs.layout import END, NAME, run_folder
from multislice_nb.jobs.store import STORAGE_EMULATOR

if TYPE_CHECKING:
    from multislice_nb.jobs.record import JobSpec

__all__ = ["startup_script"]

_GUARD_MARGIN, _FETCH = 600.0, 900.0
# Google's own names for other places of its services: a local server, a regional or a private endpoint.
_ENDPOINTS = (STORAGE_EMULATOR, "CLOUDSDK_API_ENDPOINT_OVERRIDES_SECRETMANAGER")


def startup_script(job: JobSpec, *, store: str, run: int, queued_resource: str) -> str:
    """The script.

    Args:
        job: The job; only its name, its shape, its library, its requirements and its limits matter here.
        store: URL of the store.
        run: Which submission.
        queued_resource: Full name of the queued resource that the workers belong to.
    """
    assert NAME.fullmatch(job.name)  # noqa: S101 - a JobSpec checked it
    plan = {
        "store": store,
        "job": job.name,
        "run": run,
        "queued_resource": queued_resource,
        "workers_per_slice": job.workers_per_slice,
        "end": f"{run_folder(job.name, run)}/{END}",
        "library": job.library,
        "requirements": list(job.requirements),
        "environment": "environment-" + hashlib.sha256("\n".join(job.requirements).encode()).hexdigest()[:16],
        "supervisor_requirements": _own_requirements(store),
        "guard_seconds": job.limits.time_limit + job.limits.final_grace + _GUARD_MARGIN,
        "fetch_seconds": min(_FETCH, job.limits.boot_timeout),
        "endpoints": _endpoints(),
    }
    source = Path(__file__).with_name("boot.py").read_text(encoding="utf-8")
    return (
        "#!/bin/bash\n"
        f"# Job {job.name}, run {run}, by multislice_nb. Runs at every boot.\n"
        'ulimit -n 100000 2>/dev/null || ulimit -n "$(ulimit -Hn)"\n'
        "read -r -d '' boot <<'MULTISLICE_NB_BOOT'\n"
        f"{source}"
        "MULTISLICE_NB_BOOT\n"
        f'exec python3 -c "$boot" {shlex.quote(json.dumps(plan, sort_keys=True))}\n'
    )


def _endpoints() -> dict[str, str]:
    """Variables that tell the workers where this process finds Google's services, if not at Google's own place."""
    found = {name: os.environ[name] for name in _ENDPOINTS if os.environ.get(name)}
    if STORAGE_EMULATOR in found:
        place = found[STORAGE_EMULATOR]
        found[STORAGE_EMULATOR] = place if "://" in place else f"http://{place}"
        # TensorStore, which writes Orbax's arrays, has a name of its own for the same thing; and gcsfs must not ask
        # Google what kind of bucket it is.
        found["TENSORSTORE_GCS_HTTP_URL"] = found[STORAGE_EMULATOR]
        found["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"
    return found


def _own_requirements(store: str) -> list[str]:
    """What the supervisor needs beside the standard library, at this machine's own versions."""
    names = ["fsspec", *(["gcsfs"] if store.startswith("gs://") else [])]
    return [f"{name}=={importlib.metadata.version(name)}" for name in names]
