"""The queued resource of a run, as the Cloud TPU API shows it to whoever looks after the job."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from multislice_nb import config
from multislice_nb.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from multislice_nb.cloud import Cloud

__all__ = ["ELSEWHERE", "connection", "delete", "emulator", "state"]

ELSEWHERE = "elsewhere"
"""The state of what is on an emulator that this process does not talk to: it cannot be seen from here."""


def emulator() -> str:
    """Names the emulator that this process talks to: the machine, and where on it the emulator keeps its state."""
    return f"{socket.gethostname()}:{config.state_home()}"


def _is_elsewhere(document: Mapping[str, object]) -> bool:
    """Whether a run's slices are on another emulator than this process's own."""
    return bool(document.get("emulator")) and document.get("emulator_home", emulator()) != emulator()


def connection(cloud: Cloud | None, document: Mapping[str, object]) -> Cloud:
    """A connection to where a run's slices are: the given one if it leads there.

    Args:
        cloud: The connection at hand.
        document: The run's own; empty where its slices were never asked for.
    """
    from multislice_nb.cloud import connect

    if cloud is not None and not cloud.closed and _leads_to(cloud, document):
        return cloud
    if not document:
        return connect()
    if document.get("emulator"):
        return connect(emulator=True)
    return connect(str(document["project"]), str(document["zone"]))


def _leads_to(cloud: Cloud, document: Mapping[str, object]) -> bool:
    if not document:
        return True
    if document.get("emulator"):
        return cloud.is_emulator
    return not cloud.is_emulator and cloud.project == document["project"]


def state(connect: Callable[[], Cloud], document: Mapping[str, object]) -> tuple[str, str]:
    """Its state and its error; empty where it is gone, `ELSEWHERE` where it cannot be seen."""
    if _is_elsewhere(document):
        return ELSEWHERE, ""
    cloud = connect()
    try:
        found = cloud.get(str(document["queued_resource"]), str(document["zone"]))
    except NotFoundError:  # its workers deleted it, which the ledger of this user cannot know
        known = cloud.ledger.find(
            *(str(document.get(key, "")) for key in ("project", "zone", "queued_resource"))
        )
        if known is not None:
            cloud.ledger.end(known.request_id)
        return "", ""
    return found.state, found.status.error or ""


def delete(connect: Callable[[], Cloud], document: Mapping[str, object], *, wait: bool) -> None:
    """Delete it with its slices; what is gone already is no error, and what is elsewhere its workers delete."""
    if _is_elsewhere(document):
        return
    try:
        found = connect().get(str(document["queued_resource"]), str(document["zone"]))
    except NotFoundError:
        return
    found.delete(wait=wait)
