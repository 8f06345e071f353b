"""Unattended runs that survive preemption, end, and clean up.

```python
job = ms.jobs.submit("train", "python3 train.py", folder="code", accelerator_type="v4-16", node_count=2)
job.wait().state        # or close the laptop, and later:
ms.jobs.get("train").results("results")
```

A job's command runs on every worker under a supervisor of ours. All they know of each other is in the store,
a bucket or a folder; so nothing depends on the machine that submitted. See `supervisor` for the worker's side
and `checkpoints` for training that goes on where it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from multislice_nb._lazy import lazily

if TYPE_CHECKING:
    from multislice_nb.jobs import data
    from multislice_nb.jobs.checkpoints import Checkpoints
    from multislice_nb.jobs.distributed import initialize
    from multislice_nb.jobs.job import Job
    from multislice_nb.jobs.listing import Jobs, get
    from multislice_nb.jobs.listing import list_jobs as list  # noqa: A004 - read as jobs.list()
    from multislice_nb.jobs.logs import LogLine
    from multislice_nb.jobs.manifest import Manifest, jobset
    from multislice_nb.jobs.notebook import submit_notebook
    from multislice_nb.jobs.record import JobSpec, Limits
    from multislice_nb.jobs.status import AttemptStatus, JobStatus
    from multislice_nb.jobs.store import Store
    from multislice_nb.jobs.submitting import DryRun, submit

__all__ = [
    "AttemptStatus",
    "Checkpoints",
    "DryRun",
    "Job",
    "JobSpec",
    "JobStatus",
    "Jobs",
    "Limits",
    "LogLine",
    "Manifest",
    "Store",
    "data",
    "get",
    "initialize",
    "jobset",
    "list",
    "submit",
    "submit_notebook",
]

_HOMES = {
    "AttemptStatus": ("status", "AttemptStatus"),
    "Checkpoints": ("checkpoints", "Checkpoints"),
    "DryRun": ("submitting", "DryRun"),
    "Job": ("job", "Job"),
    "JobSpec": ("record", "JobSpec"),
    "JobStatus": ("status", "JobStatus"),
    "Jobs": ("listing", "Jobs"),
    "Limits": ("record", "Limits"),
    "data": ("data", ""),
    "LogLine": ("logs", "LogLine"),
    "Manifest": ("manifest", "Manifest"),
    "Store": ("store", "Store"),
    "get": ("listing", "get"),
    "initialize": ("distributed", "initialize"),
    "jobset": ("manifest", "jobset"),
    "list": ("listing", "list_jobs"),
    "submit": ("submitting", "submit"),
    "submit_notebook": ("notebook", "submit_notebook"),
}

__getattr__, __dir__ = lazily(__name__, _HOMES)
