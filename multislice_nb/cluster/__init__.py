"""The workers of one queued resource, as one kernel.

`attach` connects to every worker over SSH, starts one engine on each, joins them in jax.distributed and
returns a `Cluster`, whose `run` executes a cell on all of them as one gang operation.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multislice_nb.cluster.attaching import attach
    from multislice_nb.cluster.cluster import Cluster
    from multislice_nb.cluster.gang import GangSettings
    from multislice_nb.cluster.handle import CellHandle
    from multislice_nb.cluster.inventory import Worker
    from multislice_nb.cluster.registry import attached
    from multislice_nb.cluster.result import CellResult, RemoteError, RemoteValue, WorkerResult

__all__ = [
    "CellHandle",
    "CellResult",
    "Cluster",
    "GangSettings",
    "RemoteError",
    "RemoteValue",
    "Worker",
    "WorkerResult",
    "attach",
    "attached",
]

# Late, because this package is also what runs on the workers, where only its agent is wanted.
_HOMES = {
    "CellHandle": "handle",
    "CellResult": "result",
    "Cluster": "cluster",
    "GangSettings": "gang",
    "RemoteError": "result",
    "RemoteValue": "result",
    "Worker": "inventory",
    "WorkerResult": "result",
    "attach": "attaching",
    "attached": "registry",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
