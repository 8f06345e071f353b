"""`connect()` and the connection it gives: queued resources of one project, in one zone at a time."""

from __future__ import annotations

import contextlib
import time
import uuid
from typing import TYPE_CHECKING, Any, Self

from multislice_nb import config
from multislice_nb._portal import sync
from multislice_nb.cloud import capacity
from multislice_nb.cloud._home import at_home
from multislice_nb.cloud.collection import QueuedResources
from multislice_nb.cloud.doctor import Report, diagnose
from multislice_nb.cloud.janitor import Janitor, left_behind
from multislice_nb.cloud.ledger import Entry, Ledger
from multislice_nb.cloud.queued_resource import QueuedResource
from multislice_nb.cloud.reclaim import look
from multislice_nb.cloud.request import QueuedResourceRequest
from multislice_nb.cloud.times import parse_duration
from multislice_nb.cloud.watch import EMULATOR_PACE, GOOGLE_PACE, Pace, Watchtower
from multislice_nb.errors import CloudError, NotFoundError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    from multislice_nb.cloud.provider import Provider
    from multislice_nb.cloud.reclaim import Reclaimable
    from multislice_nb.cloud.ssh_settings import SshSettings
    from multislice_nb.cloud.status import NodeStatus

__all__ = ["Cloud"]

OWNER_LABEL = "multislice-nb"
"""Label of everything this tool creates; its value is the id of the connection."""


class Cloud:
    """A connection: create, list and get queued resources, and see nodes.

    Methods that ask the API have asynchronous twins with an `a` before their name, for any event loop.

    Attributes:
        provider: The Cloud TPU API, or whoever stands in its place.
        settings: Project, zone and the rest, each with its origin.
        ssh: How workers are reached.
        ledger: What this user created and has not seen gone.
        janitor: Deletes what has outlived its time to live or its idle limit.
    """

    def __init__(
        self, provider: Provider, settings: config.Settings, ssh: SshSettings, ledger: Ledger
    ) -> None:
        self.provider = provider
        self.settings = settings
        self.ssh = ssh
        self.ledger = ledger
        self.janitor = Janitor(provider, ledger)
        self._id = uuid.uuid4().hex[:16]
        self._towers: dict[str, Watchtower] = {}
        self._closed = False

    @property
    def project(self) -> str:
        """The project of everything here."""
        return self.provider.project

    @property
    def zone(self) -> str:
        """The zone where queued resources are created and looked for."""
        return str(self.settings.zone.value)

    @property
    def is_emulator(self) -> bool:
        """Whether the slices are processes of this machine."""
        return self.provider.is_emulator

    @property
    def pace(self) -> Pace:
        """How often to look while something is watched."""
        return EMULATOR_PACE if self.is_emulator else GOOGLE_PACE

    @property
    def notices(self) -> tuple[str, ...]:
        """What the user should know: what was deleted by itself, and what earlier notebooks left behind."""
        left = left_behind(self.ledger, self.project)
        names = ", ".join(f"{entry.name} ({entry.chips} chips)" for entry in left)
        orphans = [f"Left by notebooks that are gone: {names}. See reclaim()."] if left else []
        return (*self.janitor.notices, *orphans)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def create(
        self,
        name: str | QueuedResourceRequest,
        *,
        wait: bool = False,
        ttl: str | float | timedelta | None = None,
        idle_limit: str | float | timedelta | None = None,
        recreate: bool = False,
        zones: Sequence[str] = (),
        capacities: Sequence[str] = (),
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
                `connect()`.
            idle_limit: It is deleted when it was not used for that long.
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
        ends: dict[str, Any] = {"ttl": ttl, "idle_limit": idle_limit, "recreate": recreate}
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
        return self._complete(name, fields)

    def tower(self, zone: str) -> Watchtower:
        """Who watches a zone; used on the background loop only."""
        if zone not in self._towers:
            self._towers[zone] = Watchtower(self.provider, zone, self.pace, self.ledger.observe)
        return self._towers[zone]

    def close(self) -> None:
        """Let go of all connections; queued resources stay. Calling it again does nothing."""
        if not self._closed:
            sync(self.aclose)

    @at_home
    async def acreate(
        self,
        name: str | QueuedResourceRequest,
        *,
        ttl: str | float | timedelta | None = None,
        idle_limit: str | float | timedelta | None = None,
        recreate: bool = False,
        **fields: Any,
    ) -> QueuedResource:
        """Twin of `create`, without waiting."""
        request = self._complete(name, fields)
        if recreate:
            await self._make_room(request)
        request_id = str(uuid.uuid4())
        self.ledger.enter(self._entry(request, request_id, ttl, idle_limit))
        try:
            await self.provider.create_queued_resource(
                request, request_id=request_id, labels={OWNER_LABEL: self._id}
            )
        except CloudError as error:
            # When the service was lost in between, nobody knows whether it was created: keep the entry.
            if not isinstance(error, UnavailableError):
                self.ledger.strike(request_id)
            raise
        if ttl is not None or idle_limit is not None or config.Multislice.instance().ttl:
            self.janitor.look_after()
        found = await self.provider.get_queued_resource(request.name, str(request.zone))
        return QueuedResource(self, self.ledger.observe([found])[0])

    @at_home
    async def acreate_anywhere(
        self,
        name: str | QueuedResourceRequest,
        *,
        zones: Sequence[str] = (),
        capacities: Sequence[str] = (),
        race: bool = True,
        patience: str | float | timedelta = "15m",
        **fields: Any,
    ) -> QueuedResource:
        """Twin of `create` with zones or capacities."""
        ends = {key: fields.pop(key) for key in ("ttl", "idle_limit", "recreate") if key in fields}
        requests = capacity.candidates(self._complete(name, fields), zones, capacities)

        async def create(request: QueuedResourceRequest) -> QueuedResource:
            return await self.acreate(request, **ends)

        search = capacity.race if race else capacity.in_order
        return await search(create, requests, patience)

    @at_home
    async def areclaim(self, zone: str = "-") -> Reclaimable:
        """Twin of `reclaim`."""
        return await look(self, zone)

    @at_home
    async def alist(self, zone: str | None = None) -> QueuedResources:
        """Twin of `list`."""
        found = await self.provider.list_queued_resources(zone or self.zone)
        return QueuedResources([QueuedResource(self, status) for status in self.ledger.observe(found)])

    @at_home
    async def aget(self, name: str, zone: str | None = None) -> QueuedResource:
        """Twin of `get`."""
        found = await self.provider.get_queued_resource(name, zone or self.zone)
        return QueuedResource(self, self.ledger.observe([found])[0])

    @at_home
    async def anodes(self, zone: str | None = None) -> tuple[NodeStatus, ...]:
        """Twin of `nodes`."""
        return await self.provider.list_nodes(zone or self.zone)

    @at_home
    async def aguest_attributes(
        self, node_id: str, query_path: str = "hostkeys/", zone: str | None = None
    ) -> tuple[Mapping[str, str], ...]:
        """Twin of `guest_attributes`."""
        return await self.provider.get_guest_attributes(node_id, zone or self.zone, query_path)

    @at_home
    async def aclose(self) -> None:
        """Twin of `close`."""
        if self._closed:
            return
        self._closed = True
        await self.janitor.close()
        for tower in self._towers.values():
            await tower.close()
        await self.provider.close()
        self.ledger.close()

    async def _make_room(self, request: QueuedResourceRequest) -> None:
        """Delete whatever has the request's name, and wait until it is gone: only then the name is free."""
        with contextlib.suppress(NotFoundError):
            old = await self.aget(request.name, str(request.zone))
            await old.adelete(force=True)

    def _complete(
        self, name: str | QueuedResourceRequest, fields: Mapping[str, Any]
    ) -> QueuedResourceRequest:
        """The request with what it leaves open taken from the settings."""
        defaults = config.Multislice.instance()
        if isinstance(name, QueuedResourceRequest):
            missing: dict[str, Any] = {
                "project": name.project or self.project,
                "zone": name.zone or self.zone,
            }
            return name.replace(**missing, **fields)
        filled: dict[str, Any] = {"project": self.project, "zone": self.zone, **fields, "name": name}
        if not filled.get("accelerator_type") and not filled.get("type"):
            filled["accelerator_type"] = defaults.accelerator_type
        for key in ("network", "subnetwork"):
            filled[key] = filled.get(key) or getattr(defaults, key)
        return QueuedResourceRequest(**filled)

    def _entry(
        self,
        request: QueuedResourceRequest,
        request_id: str,
        ttl: str | float | timedelta | None,
        idle_limit: str | float | timedelta | None,
    ) -> Entry:
        defaults = config.Multislice.instance()
        lifetime = ttl if ttl is not None else defaults.ttl
        now = time.time()
        return Entry(
            request_id=request_id,
            realm=self.ledger.realm,
            project=self.project,
            zone=str(request.zone),
            name=request.name,
            accelerator_type=request.slice_type.name,
            node_count=request.node_count,
            chips=request.chips,
            capacity=request.capacity,
            asked_at=now,
            expires_at=None if lifetime is None else now + parse_duration(lifetime).total_seconds(),
            idle_limit=None if idle_limit is None else parse_duration(idle_limit).total_seconds(),
            chip_hour_price=defaults.chip_hour_price,
        )

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
            "A real project: connect(project='my-project', zone='us-central2-b')"
        )

    def _repr_html_(self) -> str:
        return self.settings._repr_html_()
