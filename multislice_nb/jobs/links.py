"""Pages of the Google Cloud console that show a job from the outside."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["cloud_logging"]

_CONSOLE = "https://console.cloud.google.com/logs/query"

_AFTER = 3600.0
"""Seconds after the end of a run in which its machines may still have something to say."""


def cloud_logging(document: Mapping[str, Any], ended: float | None = None) -> str:
    """The page of Cloud Logging with what a run's TPU VMs logged; empty with the emulator.

    It has what no store has: why a VM did not come up. TPU VMs log as the resource `tpu_worker`, whose labels
    name zone, node and worker (source: Google's "Monitor and profile Cloud TPU VMs"). The page shows the last hour
    unless the query itself bounds the time (source: Google's "Build queries by using the Logging query language").

    Args:
        document: The run's own, with its project, its zone and its nodes.
        ended: When the run ended, in seconds since the epoch, if it has.
    """
    nodes = str(document.get("nodes", ""))
    if not nodes or document.get("emulator"):
        return ""
    lines = [
        'resource.type="tpu_worker"',
        f"resource.labels.zone={_text(str(document['zone']))}",
        f"resource.labels.node_id=~{_text(f'^{nodes}$')}",
        f'timestamp>="{_time(float(document["time"]))}"',
    ]
    if ended is not None:
        lines.append(f'timestamp<="{_time(ended + _AFTER)}"')
    project = quote(str(document["project"]), safe="")
    query = quote("\n".join(lines), safe="")
    return f"{_CONSOLE};query={query}?project={project}"


def _text(value: str) -> str:
    """A string as the query language has it."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _time(seconds: float) -> str:
    """As RFC 3339 has it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
