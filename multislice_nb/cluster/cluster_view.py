"""How an attached cluster looks, as text and as HTML."""

from __future__ import annotations

import html
import time
from typing import TYPE_CHECKING

from multislice_nb.cloud.display import html_table

if TYPE_CHECKING:
    from multislice_nb.cluster.cluster import Cluster

__all__ = ["as_html", "as_text"]


def as_text(cluster: Cluster) -> str:
    """What it is in a line, and below it what needs attention."""
    if not cluster.alive:
        return f"{cluster.name}: detached"
    first, kind = cluster.devices[0], cluster.accelerator_type
    state = (
        f"{len(cluster.alive)} of {len(cluster.workers)} workers ready · jax {first['jax']} · "
        f"{first['device_count']} devices = {cluster.node_count} slice{'s' if cluster.node_count > 1 else ''} x "
        f"{kind.device_count} ({kind.name}, {first['device_kind']})"
    )
    lines = [state, *cluster.unreachable]
    if cluster.left is not None:
        age = time.time() - cluster.left.started
        lines.append(
            f"{cluster.left.name} was left here, started {age:.0f} s ago: collect it with cluster.collect()"
        )
    return "\n".join(lines)


def as_html(cluster: Cluster) -> str:
    """The same with a table of the workers."""
    alive = set(cluster.alive)
    rows = [
        (
            *map(str, (worker.rank, worker.slice_id, worker.worker_id)),
            worker.node_id,
            worker.address,
            "ready" if worker.rank in alive else "no engine",
        )
        for worker in cluster.workers
    ]
    header = ("rank", "slice", "worker", "node", "address", "state")
    return f"<p>{html.escape(str(cluster))}</p>{html_table(header, rows, label='Workers')}"
