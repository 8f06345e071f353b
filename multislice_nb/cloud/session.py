"""`connect()` and the connection it gives: queued resources of one project, in one zone at a time."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any, Self

from multislice_nb._portal import sync
from multislice_nb.cloud.doctor import Report, diagnose
from multislice_nb.cloud.drafts import complete
from multislice_nb.cloud.session_core import CloudCore

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    from multislice_nb.cloud.collection import QueuedResources
    from multislice_nb.cloud.queued_resource import QueuedResource
    from multislice_nb.cloud.reclaim import Reclaimable
    from multislice_nb.cloud.request import QueuedResourceRequest
    from multislice_nb.cloud.status import NodeStatus

__all__ = ["Cloud"]

_REAL = (
    "%multislice connect --project my-project --zone us-central2-b",
    "ms.connect('my-project', 'us-central2-b')",
)
"""How to connect to a real project, by magic and in Python."""


class Cloud(CloudCore):
    """A connection: create, list and get queued resources, and see nodes.

    Methods that ask the API have asynchronous twins with an `a` before their name, for any event loop.

    Attributes:
        provider: The Cloud TPU API, or whoever stands in its place.
        settings: Project, zone and the rest, each with its origin.
        ssh: How workers are reached.
        ledger: What this user created and has not seen gone.
        janitor: Deletes what has outlived its time to live or its idle limit.
    """

    def create(
        self,
        name: str | QueuedResourceRequest,
        *,
        wait: bool = False,
        ttl: str | float | timedelta | None = None,
        idle_limit: str | float | timedelta | None = None,
        until_exit: bool = False,
        recreate: bool = False,
        zones: str | Sequence[str] = (),
        capacities: str | Sequence[str] = (),
        race: bool = True,
        capacity_timeout: str | float | timedelta = "15m",
        **fields: Any,
    ) -> QueuedResource:
        """Ask for slices.

        With `zones` or `capacities` it is asked for in each, all at once or in order, and this call returns
        when one has got capacity; the other requests are deleted.

        Args:
            name: Id of the queued resource, or a whole request.
            wait: Whether to wait until it is ACTIVE.
            ttl: Time to live, as `8h`: it is deleted when that is over, by this process or at the next
                `connect()`; and the service drops it by itself if it has no capacity by then.
            idle_limit: It is deleted when it was not used for that long.
            until_exit: It is deleted when this process ends, as when a notebook's kernel is stopped after a cell
                failed. A process that is killed cannot: give a time to live besides.
            recreate: Whether to delete a queued resource that has the name already, and wait until it is gone.
            zones: Zones to ask in.
            capacities: Kinds of capacity to ask for: on-demand, spot, reserved.
            race: Ask everywhere at once; one after the other otherwise.
            capacity_timeout: With zones or capacities, how long to wait for capacity; in order, for each.
            **fields: The fields of `QueuedResourceRequest`: accelerator_type, node_count, spot, ….

        Raises:
            InvalidRequestError: Everything that is wrong with the request; nothing was sent.
            AlreadyExistsError: The name is taken.
            CloudError: The API refused it; says why.
        """
        ends: dict[str, Any] = {
            "ttl": ttl,
            "idle_limit": idle_limit,
            "until_exit": until_exit,
            "recreate": recreate,
        }
        if zones or capacities:
            search: dict[str, Any] = {
                "zones": zones,
                "capacities": capacities,
                "race": race,
                "patience": capacity_timeout,
            }
            made = sync(self.acreate_anywhere, name, **search, **ends, **fields)
        else:
            made = sync(self.acreate, name, **ends, **fields)
        return made.wait() if wait else made

    def list(self, zone: str | None = None) -> QueuedResources:
        """All queued resources of a zone, this connection's when None, all zones when `-`."""
        return sync(self.alist, zone)

    def get(self, name: str, zone: str | None = None) -> QueuedResource:
        """A handle on an existing queued resource.

        Args:
            name: Its name.
            zone: Its zone. Without one it is looked for in this connection's, and then where this user asked
                for it, as `create` with `zones` does.

        Raises:
            NotFoundError: There is none of that name.
        """
        return sync(self.aget, name, zone)

    def nodes(self, zone: str | None = None) -> tuple[NodeStatus, ...]:
        """All nodes of a zone, those outside queued resources included."""
        return sync(self.anodes, zone)

    def guest_attributes(
        self, node_id: str, query_path: str = "hostkeys/", zone: str | None = None
    ) -> tuple[Mapping[str, str], ...]:
        """What each worker of a node published, in worker order; host keys by default."""
        return sync(self.aguest_attributes, node_id, query_path, zone)

    def reclaim(self, zone: str = "-") -> Reclaimable:
        """What was forgotten, with the quota it holds; `sweep()` of it deletes what you confirm."""
        return sync(self.areclaim, zone)

    def doctor(self, accelerator_type: str | None = None, runtime_version: str | None = None) -> Report:
        """A report of every precondition of using slices, each with gcloud's line and the fix."""
        return diagnose(self, accelerator_type, runtime_version)

    def request(self, name: str, **fields: Any) -> QueuedResourceRequest:
        """A checked request with this connection's project, zone and defaults filled in; nothing is sent."""
        return complete(name, fields, self.project, self.zone)

    def close(self) -> None:
        """Let go of all connections; queued resources stay. Calling it again does nothing."""
        if not self._closed:
            sync(self.aclose)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Cloud {self.project} {self.zone}{' closed' if self._closed else ''}>"

    def __str__(self) -> str:
        if not self.is_emulator:
            return (
                f"Cloud TPU API · project {self.project} ({self.settings.project.origin}) · zone {self.zone}"
            )
        return (
            f"Cloud TPU emulator on this machine ({self.settings.emulator.origin}) · zone {self.zone}\n"
            f"A real project: {_REAL[0]}, or {_REAL[1]}"
        )

    def _repr_html_(self) -> str:
        if not self.is_emulator:
            return self.settings._repr_html_()
        magic, python = (f"<code>{html.escape(line)}</code>" for line in _REAL)
        return f"<p>{html.escape(str(self).splitlines()[0])}<br>A real project: {magic}, or {python}</p>"
