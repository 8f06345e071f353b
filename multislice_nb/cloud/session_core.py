"""The asynchronous core of a connection."""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING, Any, cast

from multislice_nb._texts import did_you_mean
from multislice_nb.cloud import capacity
from multislice_nb.cloud._home import at_home
from multislice_nb.cloud.collection import QueuedResources
from multislice_nb.cloud.drafts import bounded, complete, entry_for
from multislice_nb.cloud.janitor import Janitor, left_behind
from multislice_nb.cloud.queued_resource import QueuedResource
from multislice_nb.cloud.reclaim import look
from multislice_nb.cloud.watch import EMULATOR_PACE, GOOGLE_PACE, Pace, Watchtower
from multislice_nb.errors import CloudError, InvalidRequestError, NotFoundError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    from multislice_nb import config
    from multislice_nb.cloud.ledger import Ledger
    from multislice_nb.cloud.provider import Provider
    from multislice_nb.cloud.reclaim import Reclaimable
    from multislice_nb.cloud.request import QueuedResourceRequest
    from multislice_nb.cloud.session import Cloud
    from multislice_nb.cloud.ssh_settings import SshSettings
    from multislice_nb.cloud.status import NodeStatus, QueuedResourceStatus

__all__ = ["OWNER_LABEL", "CloudCore"]

OWNER_LABEL = "multislice-nb"
"""Label of everything this tool creates; its value is the id of the connection."""


class CloudCore:
    """What a connection does on the background loop; each method may be awaited on any loop."""

    def __init__(
        self, provider: Provider, settings: config.Settings, ssh: SshSettings, ledger: Ledger
    ) -> None:
        self.provider = provider
        self.settings = settings
        self.ssh = ssh
        self.ledger = ledger
        self.janitor = Janitor(provider, ledger)
        self.until_exit: set[str] = set()
        """Ids of requests whose slices go when this process ends."""
        self._id = uuid.uuid4().hex[:16]
        self._towers: dict[str, Watchtower] = {}
        self._closed = False

    @property
    def _face(self) -> Cloud:
        """This same object: nothing but the whole connection is ever made."""
        return cast("Cloud", self)

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

    def tower(self, zone: str) -> Watchtower:
        """Who watches a zone; used on the background loop only."""
        if zone not in self._towers:
            self._towers[zone] = Watchtower(self.provider, zone, self.pace, self.ledger.observe)
        return self._towers[zone]

    @at_home
    async def acreate(
        self,
        name: str | QueuedResourceRequest,
        *,
        ttl: str | float | timedelta | None = None,
        idle_limit: str | float | timedelta | None = None,
        until_exit: bool = False,
        recreate: bool = False,
        **fields: Any,
    ) -> QueuedResource:
        """Twin of `create`, without waiting."""
        request = complete(name, fields, self.project, self.zone)
        request_id = str(uuid.uuid4())
        return await self._ask(
            request, request_id, ttl=ttl, idle_limit=idle_limit, until_exit=until_exit, recreate=recreate
        )

    async def _ask(
        self,
        request: QueuedResourceRequest,
        request_id: str,
        *,
        ttl: str | float | timedelta | None = None,
        idle_limit: str | float | timedelta | None = None,
        until_exit: bool = False,
        recreate: bool = False,
    ) -> QueuedResource:
        if recreate:
            # Refuse what is wrong with the times before anything is deleted.
            entry_for(request, request_id, self.ledger.realm, ttl, idle_limit)
            await self._make_room(request)
        entry = entry_for(request, request_id, self.ledger.realm, ttl, idle_limit)
        sent = bounded(request, entry)
        entry = self.ledger.enter(entry)
        # From here on it may exist, however this call ends.
        if until_exit:
            self.until_exit.add(request_id)
        self.janitor.look_after()
        try:
            await self.provider.create_queued_resource(
                sent, request_id=request_id, labels={OWNER_LABEL: self._id}
            )
        except CloudError as error:
            # When the service was lost in between, nobody knows whether it was created: keep the entry. What has
            # no class of its own is no refusal that is known either.
            if not isinstance(error, UnavailableError) and type(error) is not CloudError:
                self.ledger.strike(request_id)
                self.until_exit.discard(request_id)
            raise
        self.ledger.settle(entry)
        self.janitor.look_after()
        found = await self.provider.get_queued_resource(request.name, str(request.zone))
        return QueuedResource(self._face, self.ledger.observe([found])[0])

    @at_home
    async def acreate_anywhere(
        self,
        name: str | QueuedResourceRequest,
        *,
        zones: str | Sequence[str] = (),
        capacities: str | Sequence[str] = (),
        race: bool = True,
        patience: str | float | timedelta = "15m",
        **fields: Any,
    ) -> QueuedResource:
        """Twin of `create` with zones or capacities."""
        ends = {
            key: fields.pop(key) for key in ("ttl", "idle_limit", "until_exit", "recreate") if key in fields
        }
        requests = capacity.candidates(complete(name, fields, self.project, self.zone), zones, capacities)

        async def create(request: QueuedResourceRequest) -> QueuedResource:
            request_id = str(uuid.uuid4())
            try:
                return await self._ask(request, request_id, **ends)
            except BaseException:
                # Unless it was refused it may exist, and the search goes on without it.
                self.janitor.condemn(request_id, "the search for capacity went on without it")
                raise

        search = capacity.race if race else capacity.in_order
        return await search(create, requests, patience)

    @at_home
    async def areclaim(self, zone: str = "-") -> Reclaimable:
        """Twin of `reclaim`."""
        return await look(self._face, zone)

    @at_home
    async def alist(self, zone: str | None = None) -> QueuedResources:
        """Twin of `list`."""
        found = await self.provider.list_queued_resources(zone or self.zone)
        return QueuedResources([QueuedResource(self._face, status) for status in self.ledger.observe(found)])

    @at_home
    async def aget(self, name: str, zone: str | None = None) -> QueuedResource:
        """Twin of `get`."""
        found = await self._found(name, zone)
        return QueuedResource(self._face, self.ledger.observe([found])[0])

    async def _found(self, name: str, zone: str | None) -> QueuedResourceStatus:
        """In that zone; without one, in the connection's, or where this user had asked for it."""
        if not isinstance(name, str) or not name or "/" in name:
            raise InvalidRequestError(
                f"{name!r} is no name of a queued resource.",
                fix="Give the name alone; %multislice list, or cloud.list(), shows those there are.",
            )
        try:
            return await self.provider.get_queued_resource(name, zone or self.zone)
        except NotFoundError as error:
            elsewhere = [] if zone else [z for z in self.ledger.zones(self.project, name) if z != self.zone]
            for other in elsewhere:
                with contextlib.suppress(NotFoundError):
                    return await self.provider.get_queued_resource(name, other)
            near = await self._named_like(name, zone or self.zone)
            raise NotFoundError(error.what, fix=f"{near}{error.fix}") from error.__cause__

    async def _named_like(self, name: str, zone: str) -> str:
        """What was meant by a name that is not there."""
        try:
            there = [status.name for status in await self.provider.list_queued_resources(zone)]
        except CloudError:
            return ""  # that there is none of that name is the error to tell
        return f"{did_you_mean(name, there)} ".lstrip()

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
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(self.ledger.close)
            stack.push_async_callback(self.provider.close)
            for tower in self._towers.values():
                stack.push_async_callback(tower.close)
            stack.push_async_callback(self.janitor.close)

    async def _make_room(self, request: QueuedResourceRequest) -> None:
        """Delete whatever has the request's name, and wait until it is gone: only then the name is free."""
        with contextlib.suppress(NotFoundError):
            old = await self.aget(request.name, str(request.zone))
            await old.adelete(force=True)
