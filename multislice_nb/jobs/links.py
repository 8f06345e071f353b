"""Pages of the Google Cloud console that show a job from the outside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["cloud_logging"]

_CONSOLE = "https://console.cloud.google.com/logs/query"


def cloud_logging(document: Mapping[str, Any]) -> str:
    """The page of Cloud Logging with what a run's TPU VMs logged; empty with the emulator.

    It has what no store has: why a VM did not come up. TPU VMs log as the resource `tpu_worker`, whose labels
    name the node (source: Google's "Monitor and profile Cloud TPU VMs").

    Args:
        document: The run's own, with its project and its nodes.
    """
    nodes = str(document.get("nodes", ""))
    if not nodes or document.get("emulator"):
        return ""
    query = f'resource.type="tpu_worker"\nresource.labels.node_id=~"^{nodes}$"'
    project = quote(str(document["project"]), safe="")
    return f"{_CONSOLE};query={quote(query, safe='')}?project={project}"
