"""The asynchronous core of a queued resource's handle."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from multislice_nb.cloud import lifecycle, ssh_keys
from multislice_nb.cloud._home import at_home, iterating_at_home
from multislice_nb.cloud.times import parse_duration
from multislice_nb.errors import FailedPreconditionError, InvalidRequestError, NotFoundError, WaitTimeoutError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
    from datetime import timedelta

    from multislice_nb.cloud.session import Cloud
    from multislice_nb.cloud.status import Maintenance, NodeStatus, QueuedResourceStatus

__all__ = ["BOOT", "DELETE", "RESET", "WAIT", "QueuedResourceCore"]

WAIT, BOOT, DELETE, RESET = "24h", "30m", 900.0, 900.0
"""Default deadlines: in gcloud's notation, or seconds."""


class QueuedResourceCore:
    """What a handle does on the background loop; each method may be awaited on any loop."""

    def __init__(self, cloud: Cloud, status: QueuedResourceStatus) -> None:
        self.cloud = cloud
        self.status = status

    @property
    def name(self) -> str:
        """Its name."""
        return self.status.name

    @property
    def zone(self) -> str:
        """Its zone."""
        return self.status.zone

    @property
    def state(self) -> str:
        """The state it was last seen in."""
        return self.status.state

    @at_home
    async def arefresh(self) -> QueuedResourceStatus:
        """Twin of `refresh`."""
        try:
            found = await self.cloud.provider.get_queued_resource(self.name, self.zone)
        except NotFoundError:
            self.cloud.ledger.end_of(self.status)
            raise
        (self.status,) = self.cloud.ledger.observe([found])
        return self.status

    @at_home
    async def await_(
        self,
        *,
        timeout: str | float | timedelta | None = WAIT,
        capacity_timeout: str | float | timedelta | None = None,
        boot_timeout: str | float | timedelta | None = BOOT,
        progress: Callable[[QueuedResourceStatus], object] | None = None,
    ) -> Self:
        """Twin of `wait`; `progress` is called on the background loop and must not print."""
        deadlines = lifecycle.Deadlines.of(timeout, capacity_timeout, boot_timeout)
        async for status in self._until_active(deadlines):
            if progress is not None:
                progress(status)
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        return self.await_().__await__()

    @iterating_at_home
    async def awatch(self) -> AsyncGenerator[QueuedResourceStatus, None]:
        """Twin of `watch`."""
        async for status in self._changes():
            yield status

    @at_home
    async def anodes(self) -> tuple[NodeStatus, ...]:
        """Twin of `nodes`."""
        order = {node_id: index for index, node_id in enumerate(self.status.node_ids)}
        found = await self.cloud.provider.list_nodes(self.zone)
        mine = [replace(node, slice_id=order[node.node_id]) for node in found if node.node_id in order]
        return tuple(sorted(mine, key=lambda node: node.slice_id))

    @at_home
    async def amaintenance(self) -> dict[str, Maintenance]:
        """Twin of `maintenance`."""
        coming = await self.cloud.provider.list_maintenance(self.zone)
        return {node_id: coming[node_id] for node_id in self.status.node_ids if node_id in coming}

    @at_home
    async def aauthorize_ssh(self, user: str, public_key: str) -> None:
        """Twin of `authorize_ssh`."""
        entry = ssh_keys.entry(user, public_key)
        change = self.cloud.provider.set_node_metadata
        await asyncio.gather(
            *(
                change(node.node_id, self.zone, {ssh_keys.METADATA: ssh_keys.added(known, entry)})
                for node in await self.anodes()
                if not ssh_keys.holds(known := node.metadata.get(ssh_keys.METADATA, ""), entry)
            )
        )

    @at_home
    async def areset(self, *, timeout: str | float | timedelta = RESET) -> None:
        """Twin of `reset`."""
        status = await self.arefresh()
        if not status.is_active:
            raise FailedPreconditionError(
                f"{self.name} is {status.state}: only an ACTIVE queued resource can be reset.",
                fix="Wait until it is ACTIVE, or recreate it.",
            )
        seconds = parse_duration(timeout).total_seconds()
        operation = await self.cloud.provider.reset_queued_resource(self.name, self.zone)
        await self._finished(operation, f"Resetting {self.name}", seconds)
        await self.arefresh()

    @at_home
    async def aperform_maintenance(
        self, node_ids: Sequence[str] = (), *, timeout: str | float | timedelta = RESET
    ) -> tuple[str, ...]:
        """Twin of `perform_maintenance`."""
        strange = sorted(set(node_ids) - set(self.status.node_ids))
        if strange:
            raise InvalidRequestError(
                f"{self.name} has no slice {strange[0]}.", fix=f"It has {', '.join(self.status.node_ids)}."
            )
        seconds = parse_duration(timeout).total_seconds()
        chosen = tuple(node_ids or await self.amaintenance())
        if chosen:
            operation = await self.cloud.provider.perform_maintenance(self.name, self.zone, chosen)
            await self._finished(operation, f"Maintaining {self.name}", seconds)
            await self.arefresh()
        return chosen

    async def _finished(self, operation: str, doing: str, seconds: float) -> None:
        """Wait for the end of an operation that restarts workers."""
        try:
            async with asyncio.timeout(seconds):
                await self.cloud.provider.finish(operation, doing)
        except TimeoutError as error:
            raise WaitTimeoutError(
                f"{doing} takes longer than {seconds:.0f} s.",
                fix="It goes on by itself; look at nodes() until all are READY.",
            ) from error

    @at_home
    async def adelete(
        self,
        *,
        force: bool = True,
        wait: bool = True,
        timeout: str | float | timedelta = DELETE,
        taken: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """Twin of `delete`; `taken` is called and awaited once it cannot be refused any more."""
        seconds = parse_duration(timeout).total_seconds()
        provider = self.cloud.provider
        operation: str | None
        try:
            operation = await provider.delete_queued_resource(self.name, self.zone, force=force)
        except NotFoundError:
            self.cloud.ledger.end_of(self.status)
            operation = None
        if taken is not None:
            await taken()
        if wait and operation is not None:
            await lifecycle.until_gone(provider, self.name, self.zone, operation, seconds)
            self.cloud.ledger.end_of(self.status)

    @at_home
    async def arecreate(
        self,
        *,
        timeout: str | float | timedelta = DELETE,
        taken: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """Twin of `recreate`; `taken` is that of `adelete`."""
        request = await self.cloud.provider.get_request(self.name, self.zone)
        old = self.cloud.ledger.entry_of(self.status)
        await self.adelete(timeout=timeout, taken=taken)
        ttl = old.expires_at - old.asked_at if old and old.expires_at is not None else None
        again = await self.cloud.acreate(
            request,
            ttl=ttl,
            idle_limit=old.idle_limit if old else None,
            until_exit=old is not None and old.request_id in self.cloud.until_exit,
        )
        self.status = again.status

    async def _node_changes(self) -> AsyncGenerator[tuple[NodeStatus, ...], None]:
        last: list[object] | None = None
        pause = self.cloud.pace.first
        while True:
            coming = await self.amaintenance()
            nodes = tuple(replace(node, maintenance=coming.get(node.node_id)) for node in await self.anodes())
            seen: list[object] = [(node.node_id, node.state, node.health, node.maintenance) for node in nodes]
            pause = self.cloud.pace.after(pause) if seen == last else self.cloud.pace.first
            if seen != last:
                last = seen
                yield nodes
            await asyncio.sleep(self.cloud.pace.spread(pause))

    async def _until_active(
        self, deadlines: lifecycle.Deadlines
    ) -> AsyncGenerator[QueuedResourceStatus, None]:
        seen = self.cloud.tower(self.zone).follow(self.name)
        async for status in lifecycle.until_active(self.cloud.provider, seen, self.name, deadlines):
            self.status = status
            yield status

    async def _changes(self) -> AsyncGenerator[QueuedResourceStatus, None]:
        last = ""
        try:
            async with contextlib.aclosing(self.cloud.tower(self.zone).follow(self.name)) as seen:
                async for status in seen:
                    self.status = status
                    if status.state != last:
                        last = status.state
                        yield status
        except NotFoundError:
            self.cloud.ledger.end_of(self.status)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.adelete()

    def __repr__(self) -> str:
        return f"<QueuedResource {self.name} {self.state}>"

    def __str__(self) -> str:
        return str(self.status)

    def _repr_html_(self) -> str:
        return self.status._repr_html_()
