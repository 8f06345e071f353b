"""Waiting until a queued resource is ACTIVE, with one deadline for capacity and another for booting."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from multislice_nb.cloud import advice
from multislice_nb.cloud.times import parse_duration, short
from multislice_nb.errors import NotFoundError, QueuedResourceFailedError, WaitTimeoutError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from datetime import timedelta

    from multislice_nb.cloud.provider import Provider
    from multislice_nb.cloud.status import QueuedResourceStatus

__all__ = ["Deadlines", "WaitInterrupted", "until_active", "until_gone"]


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long to wait, in seconds; None is without end.

    Attributes:
        total: For everything. What was asked for is kept when it passes.
        capacity: For capacity to be found. The request is deleted when it passes, since slices that come
            after everybody left would run for nobody.
        boot: From PROVISIONING to ACTIVE with every node READY. The request is kept.
    """

    total: float | None
    capacity: float | None
    boot: float | None

    @classmethod
    def of(
        cls,
        total: str | float | timedelta | None,
        capacity: str | float | timedelta | None,
        boot: str | float | timedelta | None,
    ) -> Deadlines:
        """From gcloud's notation or seconds."""
        return cls(
            *(None if d is None else parse_duration(d).total_seconds() for d in (total, capacity, boot))
        )


class WaitInterrupted(KeyboardInterrupt):
    """A wait was interrupted. Says what became of the queued resource."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def _render_traceback_(self) -> list[str]:
        return [f"Interrupted: {self.what}"]


class _Clock:
    """Knows how long each stage has lasted and which deadline has passed."""

    def __init__(self, deadlines: Deadlines) -> None:
        self.deadlines = deadlines
        self.started = self.stage_started = time.monotonic()
        self.stage = ""

    def enter(self, status: QueuedResourceStatus) -> None:
        stage = "capacity" if status.is_waiting else "boot"
        if stage != self.stage:
            self.stage, self.stage_started = stage, time.monotonic()

    def left(self) -> float | None:
        """Seconds until the first deadline; None without any."""
        now = time.monotonic()
        limits = [
            (self.deadlines.total, self.started),
            (getattr(self.deadlines, self.stage) if self.stage else None, self.stage_started),
        ]
        ends = [since + limit - now for limit, since in limits if limit is not None]
        return min(ends) if ends else None

    def passed(self) -> str:
        """Which deadline has passed: total, capacity or boot."""
        limit = getattr(self.deadlines, self.stage) if self.stage else None
        over = limit is not None and time.monotonic() - self.stage_started >= limit
        return self.stage if over else "total"


async def until_active(
    provider: Provider, statuses: AsyncGenerator[QueuedResourceStatus, None], name: str, deadlines: Deadlines
) -> AsyncGenerator[QueuedResourceStatus, None]:
    """Its status at every look until it is ACTIVE and all its nodes are READY.

    Raises:
        WaitTimeoutError: A deadline passed.
        QueuedResourceFailedError: It cannot become ACTIVE any more.
        NotFoundError: It is gone.
    """
    clock = _Clock(deadlines)
    status: QueuedResourceStatus | None = None
    async with contextlib.aclosing(statuses):
        while True:
            try:
                async with asyncio.timeout(clock.left()):
                    status = await anext(statuses)
            except TimeoutError as error:
                raise await _give_up(provider, status, name, clock) from error
            clock.enter(status)
            yield status
            if status.is_dead or status.state in {"DELETING", "SUSPENDING"}:
                raise await _explain(provider, status)
            if status.is_active and await _all_ready(provider, status):
                return


async def until_gone(provider: Provider, name: str, zone: str, operation: str, timeout: float) -> None:
    """Wait until a deletion is done and the name is free.

    Raises:
        WaitTimeoutError: It is still there when the deadline passes.
        CloudError: The deletion failed.
    """
    try:
        async with asyncio.timeout(timeout):
            with contextlib.suppress(NotFoundError):
                await provider.finish(operation, f"Deleting {name}")
            pause = 0.05
            while True:
                await provider.get_queued_resource(name, zone)
                await asyncio.sleep(pause)
                pause = min(pause * 1.6, 4.0)
    except NotFoundError:
        return
    except TimeoutError as error:
        raise WaitTimeoutError(
            f"{name} in {zone} is still being deleted after {short(timeout)}.",
            fix="Deleting takes 2 to 5 minutes on Google Cloud and goes on by itself; look again with list().",
        ) from error


async def _all_ready(provider: Provider, status: QueuedResourceStatus) -> bool:
    nodes = {node.node_id: node for node in await provider.list_nodes(status.zone)}
    return all(nodes[node_id].state == "READY" for node_id in status.node_ids if node_id in nodes) and set(
        status.node_ids
    ) <= set(nodes)


async def _explain(provider: Provider, status: QueuedResourceStatus) -> QueuedResourceFailedError:
    """Why it failed, and that some slices may be there all the same."""
    error = advice.failure(status)
    nodes = [node for node in await provider.list_nodes(status.zone) if node.node_id in status.node_ids]
    ready = [node.node_id for node in nodes if node.state == "READY"]
    if ready and status.state == "FAILED":
        error = QueuedResourceFailedError(
            f"{error.what} {len(ready)} of its {status.node_count} slices run all the same: {', '.join(ready)}.",
            fix=f"Delete it with force so that they stop, and try again in a few minutes. {error.fix}",
        )
    return error


async def _give_up(
    provider: Provider, status: QueuedResourceStatus | None, name: str, clock: _Clock
) -> WaitTimeoutError:
    deadline = clock.passed()
    state = f"{status.state} in {status.zone} ({status.capacity})" if status else "not seen"
    lasted = short(time.monotonic() - clock.started)
    what = f"{name} is {state} after {lasted}: the deadline for {_MEANING[deadline]} passed."
    if status is not None and deadline == "capacity":
        await provider.delete_queued_resource(name, status.zone, force=True)
        return WaitTimeoutError(
            f"{what} The request was cancelled, so that no slices come when nobody waits for them.",
            fix="Ask again with a longer capacity_timeout, in other zones (zones=[…]), or with other capacity.",
        )
    more = advice.patience(status) if status else None
    zone = f" --zone={status.zone}" if status else ""
    return WaitTimeoutError(
        f"{what} The request is kept." + (f" {more}" if more else ""),
        fix=f"Wait again, or delete it: qr.delete(), %multislice delete {name}, or "
        f"gcloud compute tpus queued-resources delete {name}{zone} --force",
    )


_MEANING = {"total": "this wait", "capacity": "finding capacity", "boot": "starting the slices"}
