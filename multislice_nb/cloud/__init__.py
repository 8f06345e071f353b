"""The Cloud TPU API: requests, queued resources, nodes; Google's or the emulator's, by one code path.

`connect()` gives a `Cloud`; its `create`, `list` and `get` give `QueuedResource` handles, whose statuses are
frozen. Errors are those of `multislice_nb.errors`, with advice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from multislice_nb._lazy import lazily

if TYPE_CHECKING:
    from multislice_nb.cloud.collection import QueuedResources
    from multislice_nb.cloud.connection import close_all, connect
    from multislice_nb.cloud.cost import Usage
    from multislice_nb.cloud.doctor import Check, Report
    from multislice_nb.cloud.ledger import Entry, Ledger, StateChange
    from multislice_nb.cloud.lifecycle import WaitInterrupted
    from multislice_nb.cloud.provider import Provider
    from multislice_nb.cloud.queued_resource import QueuedResource
    from multislice_nb.cloud.reclaim import Finding, Reclaimable
    from multislice_nb.cloud.request import DataDisk, QueuedResourceRequest
    from multislice_nb.cloud.session import Cloud
    from multislice_nb.cloud.ssh_settings import SshSettings
    from multislice_nb.cloud.status import Endpoint, Maintenance, NodeStatus, QueuedResourceStatus

__all__ = [
    "Check",
    "Cloud",
    "DataDisk",
    "Endpoint",
    "Entry",
    "Finding",
    "Ledger",
    "Maintenance",
    "NodeStatus",
    "Provider",
    "QueuedResource",
    "QueuedResourceRequest",
    "QueuedResourceStatus",
    "QueuedResources",
    "Reclaimable",
    "Report",
    "SshSettings",
    "StateChange",
    "Usage",
    "WaitInterrupted",
    "close_all",
    "connect",
]

_HOMES = {
    "Usage": "cost",
    "Reclaimable": "reclaim",
    "Finding": "reclaim",
    "Report": "doctor",
    "Check": "doctor",
    "Cloud": "session",
    "DataDisk": "request",
    "Endpoint": "status",
    "Entry": "ledger",
    "Ledger": "ledger",
    "Maintenance": "status",
    "NodeStatus": "status",
    "Provider": "provider",
    "QueuedResource": "queued_resource",
    "QueuedResourceRequest": "request",
    "QueuedResourceStatus": "status",
    "QueuedResources": "collection",
    "SshSettings": "ssh_settings",
    "StateChange": "ledger",
    "WaitInterrupted": "lifecycle",
    "close_all": "connection",
    "connect": "connection",
}

__getattr__, __dir__ = lazily(__name__, _HOMES)
