"""The workers of one queued resource, as one kernel.

`attach` connects to every worker over SSH, starts one engine on each, joins them in jax.distributed and
returns a `Cluster`, whose `run` executes a cell on all of them as one gang operation. `reach` connects over SSH
alone: files, shell commands, and what a worker's environment is like.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from multislice_nb._lazy import lazily

if TYPE_CHECKING:
    from multislice_nb.cluster.attaching import attach
    from multislice_nb.cluster.cluster import Cluster
    from multislice_nb.cluster.detached import Detached
    from multislice_nb.cluster.environment_report import CleanResult, EnvironmentReport, Installed
    from multislice_nb.cluster.handle import CellHandle
    from multislice_nb.cluster.inventory import Worker
    from multislice_nb.cluster.reaching import Reach, reach
    from multislice_nb.cluster.registry import attached, clusters
    from multislice_nb.cluster.result import CellResult, RemoteError, RemoteValue, WorkerResult
    from multislice_nb.cluster.settings import GangSettings
    from multislice_nb.cluster.shell_result import ShellResult
    from multislice_nb.cluster.transfer import PullResult, PushResult, Transfer
    from multislice_nb.cluster.usage import DeviceUsage, UsageReport, WorkerUsage

__all__ = [
    "CellHandle",
    "CellResult",
    "CleanResult",
    "Cluster",
    "Detached",
    "DeviceUsage",
    "EnvironmentReport",
    "GangSettings",
    "Installed",
    "PullResult",
    "PushResult",
    "Reach",
    "RemoteError",
    "RemoteValue",
    "ShellResult",
    "Transfer",
    "UsageReport",
    "Worker",
    "WorkerResult",
    "WorkerUsage",
    "attach",
    "attached",
    "clusters",
    "reach",
]

# Late, because this package is also what runs on the workers, where only its agent is wanted.
_HOMES = {
    "CellHandle": "handle",
    "CellResult": "result",
    "CleanResult": "environment_report",
    "Cluster": "cluster",
    "Detached": "detached",
    "DeviceUsage": "usage",
    "EnvironmentReport": "environment_report",
    "GangSettings": "settings",
    "Installed": "environment_report",
    "PullResult": "transfer",
    "PushResult": "transfer",
    "Reach": "reaching",
    "RemoteError": "result",
    "RemoteValue": "result",
    "ShellResult": "shell_result",
    "Transfer": "transfer",
    "UsageReport": "usage",
    "Worker": "inventory",
    "WorkerResult": "result",
    "WorkerUsage": "usage",
    "attach": "attaching",
    "attached": "registry",
    "clusters": "registry",
    "reach": "reaching",
}

__getattr__, __dir__ = lazily(__name__, _HOMES)
