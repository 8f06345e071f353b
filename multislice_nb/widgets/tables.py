"""Queued resources, slices and workers as HTML and as text, from the same snapshot; everything escaped."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from multislice_nb.cloud.display import shouted, text_table
from multislice_nb.cloud.times import short
from multislice_nb.widgets.style import CSS, state_html, state_mark

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from multislice_nb.cloud import NodeStatus, QueuedResourceStatus, StateChange
    from multislice_nb.widgets.snapshot import Snapshot

__all__ = [
    "head_html",
    "nodes_html",
    "resources_html",
    "static_html",
    "static_text",
    "table_html",
]

_COLUMNS = ("State", "Name", "Slices", "Chips", "Workers", "Capacity", "Zone", "For", "Notice")
_NUMBERS = {"Chips", "Workers", "Memory", "CPU"}


def head_html(snapshot: Snapshot | None) -> str:
    """The connection, and when it was last looked at."""
    if snapshot is None:
        return '<div class="msnb msnb-head"><span>Looking…</span></div>'
    where = html.escape(snapshot.connection or "Not connected.")
    at = snapshot.at.astimezone().strftime("%H:%M:%S")
    problem = (
        f'<div class="msnb-fault" role="alert">{html.escape(snapshot.problem)}</div>'
        if snapshot.problem
        else ""
    )
    return (
        f'<div class="msnb"><div class="msnb-head"><span>{where}</span>'
        f'<span class="msnb-muted" title="When this was last looked at">{at}</span></div>{problem}</div>'
    )


def resources_html(snapshot: Snapshot, chosen: str | None = None) -> str:
    """A table of queued resources."""
    if not snapshot.queued_resources and snapshot.problem:
        return ""  # that there are none is not known
    if not snapshot.queued_resources:
        what = "No queued resources." if snapshot.connection else "Connect to see queued resources."
        return f'<div class="msnb msnb-empty">{what}</div>'
    rows = [
        (status.name == chosen, [state_html(status.state), *map(html.escape, _cells(status, snapshot))])
        for status in snapshot.queued_resources
    ]
    return table_html("Queued resources", _COLUMNS, rows)


def _cells(status: QueuedResourceStatus, snapshot: Snapshot) -> list[str]:
    seconds = status.time_in_state()
    return [
        status.name,
        status.shape,
        str(status.chips or ""),
        str(status.workers or ""),
        status.capacity,
        status.zone,
        "" if seconds is None else short(seconds),
        " · ".join(_notices(status, snapshot.nodes.get(status.name, ()))),
    ]


def _notices(status: QueuedResourceStatus, nodes: Sequence[NodeStatus]) -> Iterable[str]:
    if status.error:
        yield status.error
    if status.is_dead:
        yield "holds its name and quota until it is deleted"
    if status.state_initiator == "SERVICE" and status.state in {"SUSPENDING", "SUSPENDED"}:
        yield "by the service"
    for node in nodes:
        if node.maintenance:
            yield f"{node.node_id}: {node.maintenance}"
        elif status.is_active and not node.is_ready:
            yield f"{node.node_id} is {node.state}"


def nodes_html(nodes: Sequence[NodeStatus], timeline: Sequence[StateChange]) -> str:
    """The slices of one queued resource, and how it came to where it is."""
    path = f'<div class="msnb-path">{_steps(timeline)}</div>' if timeline else ""
    if not nodes:
        return f'<div class="msnb">{path}</div>'
    rows = [
        (
            False,
            [
                state_html(node.state),
                html.escape(node.node_id),
                str(node.slice_id),
                html.escape(node.accelerator_type),
                html.escape("" if node.health == "HEALTH_UNSPECIFIED" else node.health),
                str(len(node.endpoints)),
                html.escape(_addresses(node)),
            ],
        )
        for node in nodes
    ]
    columns = ("State", "Node", "Slice", "Type", "Health", "Workers", "Addresses")
    return f'<div class="msnb">{path}</div>{table_html("Slices", columns, rows)}'


def _steps(timeline: Sequence[StateChange]) -> str:
    parts = []
    for change, after in zip(timeline, [*timeline[1:], None], strict=True):
        time = (
            f" <span class=msnb-muted>{short((after.at - change.at).total_seconds())} →</span>"
            if after
            else ""
        )
        parts.append(f"<span>{state_html(change.state, title=change.at.isoformat())}{time}</span>")
    return "".join(parts)


def _addresses(node: NodeStatus) -> str:
    first = [endpoint.external_ip or endpoint.ip_address for endpoint in node.endpoints[:2]]
    more = len(node.endpoints) - len(first)
    return ", ".join(first) + (f" and {more} more" if more else "")


def table_html(caption: str, columns: Sequence[str], rows: Iterable[tuple[bool, Sequence[str]]]) -> str:
    """A table in the panel's style.

    Args:
        caption: What it is, for those who cannot see it.
        columns: Headers.
        rows: Whether each is the chosen one, and its cells, which are HTML already.
    """
    head = "".join(f'<th scope="col"{_kind(column)}>{html.escape(column)}</th>' for column in columns)
    body = "".join(
        f"<tr{' class=msnb-chosen' if chosen else ''}>"
        + "".join(f"<td{_kind(column)}>{cell}</td>" for column, cell in zip(columns, cells, strict=True))
        + "</tr>"
        for chosen, cells in rows
    )
    return (
        f'<div class="msnb msnb-scroll"><table class="msnb-table" aria-label="{html.escape(caption)}">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _kind(column: str) -> str:
    if column in _NUMBERS:
        return ' class="msnb-number"'
    return ' class="msnb-wide"' if column in {"Notice", "Last output"} else ""


def static_html(snapshot: Snapshot) -> str:
    """The panel where nothing can move: in a page, a saved notebook, an e-mail."""
    from multislice_nb.widgets.worker_tables import grid_html

    clusters = "".join(grid_html(cluster) for cluster in snapshot.clusters)
    return f"{CSS}{head_html(snapshot)}{resources_html(snapshot)}{clusters}"


def static_text(snapshot: Snapshot) -> str:
    """The panel in a terminal."""
    lines = [snapshot.connection or "Not connected. Connect with %multislice connect."]
    if snapshot.problem:
        lines.append(snapshot.problem)
    if snapshot.queued_resources:
        rows = [[state_mark(status.state), *_cells(status, snapshot)] for status in snapshot.queued_resources]
        lines.append(text_table(shouted(_COLUMNS), rows))
    elif snapshot.connection and not snapshot.problem:
        lines.append("No queued resources.")
    return "\n".join([*lines, *(f"{one.name}: {one.summary}" for one in snapshot.clusters)])
