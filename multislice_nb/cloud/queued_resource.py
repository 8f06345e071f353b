"""A live handle on one queued resource.

Every method that asks the API has an asynchronous twin with an `a` before its name (`anodes`, `adelete`, …),
which may be awaited on any event loop; `await qr` is the twin of `qr.wait()`.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from multislice_nb._portal import iterate, loop, sync
from multislice_nb.cloud import lifecycle
from multislice_nb.cloud._home import at_home, iterating_at_home
from multislice_nb.cloud.cost import Usage, usage
from multislice_nb.cloud.times import parse_duration
from multislice_nb.errors import FailedPreconditionError, NotFoundError, WaitTimeoutError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Iterator
    from concurrent.futures import Future
    from datetime import timedelta

    from multislice_nb.cloud.ledger import StateChange
    from multislice_nb.cloud.session import Cloud
    from multislice_nb.cloud.status import Maintenance, NodeStatus, QueuedResourceStatus

__all__ = ["QueuedResource"]

_WAIT, _BOOT, _DELETE, _RESET = "24h", "30m", 900.0, 900.0


class QueuedResource:
    """One queued resource: look at it, wait for it, watch it, reset it, delete it.

    As a context manager it deletes itself at the end of the block, whatever happened inside.

    Attributes:
        cloud: The connection it came through.
        status: What was last seen of it; `refresh()` looks again.
    """

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

    def refresh(self) -> QueuedResourceStatus:
        """Look at it again.

        Raises:
            NotFoundError: It is gone.
        """
        return sync(self.arefresh)

    def wait(
        self,
        *,
        timeout: str | float | timedelta | None = _WAIT,
        capacity_timeout: str | float | timedelta | None = None,
        boot_timeout: str | float | timedelta | None = _BOOT,
        progress: Callable[[QueuedResourceStatus], object] | None = None,
        cancel_on_interrupt: bool = False,
    ) -> Self:
        """Wait until it is ACTIVE and all its nodes are READY.

        Args:
            timeout: For everything, in seconds or as `2h`. The request is kept when it passes.
            capacity_timeout: For finding capacity. The request is deleted when it passes.
            boot_timeout: From PROVISIONING on. The request is kept when it passes.
            progress: Called here with its status at every look.
            cancel_on_interrupt: Whether an interrupt deletes the request; it is kept otherwise.

        Raises:
            WaitTimeoutError: A deadline passed.
            QueuedResourceFailedError: It cannot become ACTIVE any more; says why.
            NotFoundError: It is gone.
            WaitInterrupted: A KeyboardInterrupt that says what became of the request.
        """
        deadlines = lifecycle.Deadlines.of(timeout, capacity_timeout, boot_timeout)
        try:
            for status in iterate(self._until_active, deadlines):
                if progress is not None:
                    progress(status)
        except KeyboardInterrupt:
            raise self._interrupted(delete=cancel_on_interrupt) from None
        return self

    def watch(self) -> Iterator[QueuedResourceStatus]:
        """Its status now and at every change of state, until it is gone."""
        return iterate(self._changes)

    def nodes(self) -> tuple[NodeStatus, ...]:
        """Its slices, in slice order; those that do not exist yet or any more are left out."""
        return sync(self.anodes)

    def maintenance(self) -> dict[str, Maintenance]:
        """Coming maintenance, by node."""
        return sync(self.amaintenance)

    def reset(self, *, timeout: str | float | timedelta = _RESET) -> Self:
        """Restart all its workers, which runs their startup script again; local files stay.

        Raises:
            FailedPreconditionError: It is not ACTIVE.
            WaitTimeoutError: It takes longer than `timeout`; on Google Cloud 1 to 2 minutes are usual.
        """
        sync(self.areset, timeout=timeout)
        return self

    def delete(
        self, *, force: bool = True, wait: bool = True, timeout: str | float | timedelta = _DELETE
    ) -> None:
        """Delete it; with force, its slices too. Deleting what is already gone is no error.

        Args:
            force: Delete its nodes with it. Without, it must have none.
            wait: Whether to wait until it is gone and its name is free.
            timeout: How long; on Google Cloud 2 to 5 minutes are usual.

        Raises:
            FailedPreconditionError: It has nodes, and force is off.
            WaitTimeoutError: It is still there when the deadline passes.
        """
        sync(self.adelete, force=force, wait=wait, timeout=timeout)

    def recreate(self, *, timeout: str | float | timedelta = _DELETE) -> Self:
        """Delete it with force, wait until it is gone, and ask for the same again.

        Raises:
            WaitTimeoutError: It is still there when the deadline passes; nothing was asked for again.
        """
        sync(self.arecreate, timeout=timeout)
        return self

    def wait_async(
        self,
        done: Callable[[Future[Self]], object] | None = None,
        *,
        timeout: str | float | timedelta | None = _WAIT,
        capacity_timeout: str | float | timedelta | None = None,
        boot_timeout: str | float | timedelta | None = _BOOT,
    ) -> Future[Self]:
        """Wait without blocking; the future has `done()`, `result()`, `exception()` and `cancel()`.

        Args:
            done: Called with the future when it is over, on the background loop: it must not print.
            timeout: As for `wait`.
            capacity_timeout: As for `wait`.
            boot_timeout: As for `wait`.
        """
        waiting = self.await_(timeout=timeout, capacity_timeout=capacity_timeout, boot_timeout=boot_timeout)
        future = asyncio.run_coroutine_threadsafe(waiting, loop())
        if done is not None:
            future.add_done_callback(done)
        return future

    def watch_nodes(self) -> Iterator[tuple[NodeStatus, ...]]:
        """Its slices now and whenever one changes: preempted, in maintenance, repaired, or about to be."""
        return iterate(self._node_changes)

    @property
    def usage(self) -> Usage:
        """Chip-hours so far, and cost if `%config Multislice.chip_hour_price` was set when it was created."""
        entry = self.cloud.ledger.find(self.status.project, self.zone, self.name)
        return usage(self.status, self.timeline(), entry.chip_hour_price if entry else None)

    def timeline(self) -> tuple[StateChange, ...]:
        """Every state it was seen in by any of this user's notebooks, oldest first."""
        return self.cloud.ledger.timeline(self.status)

    def touch(self) -> None:
        """Say that it is in use, which its idle limit counts from."""
        self.cloud.ledger.use(self.status.project, self.zone, self.name)

    @at_home
    async def arefresh(self) -> QueuedResourceStatus:
        """Twin of `refresh`."""
        try:
            found = await self.cloud.provider.get_queued_resource(self.name, self.zone)
        except NotFoundError:
            self.cloud.ledger.end(self.status.project, self.zone, self.name)
            raise
        (self.status,) = self.cloud.ledger.observe([found])
        return self.status

    @at_home
    async def await_(
        self,
        *,
        timeout: str | float | timedelta | None = _WAIT,
        capacity_timeout: str | float | timedelta | None = None,
        boot_timeout: str | float | timedelta | None = _BOOT,
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
    async def areset(self, *, timeout: str | float | timedelta = _RESET) -> None:
        """Twin of `reset`."""
        status = await self.arefresh()
        if not status.is_active:
            raise FailedPreconditionError(
                f"{self.name} is {status.state}: only an ACTIVE queued resource can be reset.",
                fix="Wait until it is ACTIVE, or recreate it.",
            )
        seconds = parse_duration(timeout).total_seconds()
        operation = await self.cloud.provider.reset_queued_resource(self.name, self.zone)
        try:
            async with asyncio.timeout(seconds):
                await self.cloud.provider.finish(operation, f"Resetting {self.name}")
        except TimeoutError as error:
            raise WaitTimeoutError(
                f"{self.name} is still being reset after {seconds:.0f} s.",
                fix="It goes on by itself; look at nodes() until all are READY.",
            ) from error
        await self.arefresh()

    @at_home
    async def adelete(
        self, *, force: bool = True, wait: bool = True, timeout: str | float | timedelta = _DELETE
    ) -> None:
        """Twin of `delete`."""
        seconds = parse_duration(timeout).total_seconds()
        provider = self.cloud.provider
        try:
            operation = await provider.delete_queued_resource(self.name, self.zone, force=force)
        except NotFoundError:
            self.cloud.ledger.end(self.status.project, self.zone, self.name)
            return
        if wait:
            await lifecycle.until_gone(provider, self.name, self.zone, operation, seconds)
            self.cloud.ledger.end(self.status.project, self.zone, self.name)

    @at_home
    async def arecreate(self, *, timeout: str | float | timedelta = _DELETE) -> None:
        """Twin of `recreate`."""
        request = await self.cloud.provider.get_request(self.name, self.zone)
        old = self.cloud.ledger.find(self.status.project, self.zone, self.name)
        await self.adelete(timeout=timeout)
        ttl = old.expires_at - old.asked_at if old and old.expires_at is not None else None
        again = await self.cloud.acreate(request, ttl=ttl, idle_limit=old.idle_limit if old else None)
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
            self.cloud.ledger.end(self.status.project, self.zone, self.name)

    def _interrupted(self, *, delete: bool) -> lifecycle.WaitInterrupted:
        if delete:
            self.delete(wait=False)
            return lifecycle.WaitInterrupted(f"{self.name} is being deleted, as you asked for.")
        return lifecycle.WaitInterrupted(
            f"{self.name} is kept and still {self.state}. Delete it with qr.delete(), "
            f"%multislice delete {self.name}, or gcloud compute tpus queued-resources delete {self.name} "
            f"--zone={self.zone} --force"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.delete()

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
