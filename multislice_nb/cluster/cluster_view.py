"""How an attached cluster looks, as text and as HTML."""

from __future__ import annotations

import html
import time
from typing import TYPE_CHECKING

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
    rows = "".join(
        f"<tr><td>{w.rank}</td><td>{w.slice_id}</td><td>{w.worker_id}</td><td>{html.escape(w.node_id)}</td>"
        f"<td>{html.escape(w.address)}</td><td>{'ready' if w.rank in alive else 'no engine'}</td></tr>"
        for w in cluster.workers
    )
    names = ("rank", "slice", "worker", "node", "address", "state")
    head = "".join(f"<th scope='col'>{name}</th>" for name in names)
    return f"<p>{html.escape(str(cluster))}</p><table aria-label='Workers'><tr>{head}</tr>{rows}</table>"
