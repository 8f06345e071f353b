"""After slices were preempted, broke or were reset: wait for their repair, and form the gang again.

Cloud TPU replaces a broken slice of several and then resets the others, so that nodes which are all READY at one
moment may be about to restart. A gang that does not form then is no failure yet: it is tried again until the
deadline.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, TypeVar

from multislice_nb import errors
from multislice_nb.cloud.advice import failure
from multislice_nb.cluster.health import look
from multislice_nb.cluster.settings import from_environment
from multislice_nb.config import Multislice

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from multislice_nb.cloud import QueuedResource
    from multislice_nb.cluster.health import Health

__all__ = ["recovered", "repair_seconds"]

T = TypeVar("T")

REPAIR_DEADLINE = 1800.0
"""Seconds for a repair, which may have to wait for capacity; a reset takes one to two minutes on Google Cloud."""

VARIABLE = "MULTISLICE_NB_REPAIR_DEADLINE"

LOOK_EVERY = 1.0
"""Seconds between two looks at the nodes, and before a gang that did not form is tried again."""

SETTLED = 2.0
"""Seconds for which repaired nodes must have been READY: the reset of the others follows at once."""


def repair_seconds(asked: float | None) -> float:
    """The deadline of a repair: as asked, `%config Multislice.repair_deadline`, the environment, or the default.

    Raises:
        errors.ConfigurationError: The environment holds no number.
    """
    for value in (asked, Multislice.instance().repair_deadline):
        if value is not None:
            return value
    return from_environment(VARIABLE, REPAIR_DEADLINE)


async def recovered(
    queued_resource: QueuedResource,
    form: Callable[[], Awaitable[T]],
    *,
    deadline: float | None,
    report: Callable[[str], None],
) -> T:
    """Wait until all slices are READY, and form a gang on them.

    Args:
        queued_resource: Whose slices they are.
        form: Forms the gang, or finds one that is whole.
        deadline: Seconds for all of it; see `repair_seconds`.
        report: Told each step.

    Returns:
        What `form` returned.

    Raises:
        errors.QueuedResourceFailedError: It does not come back by itself.
        errors.WaitTimeoutError: The deadline passed; names what was waited for.
    """
    seconds = repair_seconds(deadline)
    limit = time.monotonic() + seconds
    while True:
        culprit = await _until_ready(queued_resource, limit, report)
        if not culprit:
            try:
                return await form()
            except (errors.ConnectError, errors.StartError) as error:
                culprit = error.what
                report("trying again, as a slice may just have been reset")
        if time.monotonic() >= limit:
            raise errors.WaitTimeoutError(
                f"{queued_resource.name} was not repaired within {seconds:.0f} s: {culprit}",
                fix=f"Wait longer with --repair-deadline, look at it with %multislice describe "
                f"{queued_resource.name}, or %multislice recreate {queued_resource.name}.",
            )
        await asyncio.sleep(min(LOOK_EVERY, max(0.0, limit - time.monotonic())))


async def _until_ready(queued_resource: QueuedResource, limit: float, report: Callable[[str], None]) -> str:
    """Wait until all nodes have been READY for a while; what was still amiss at the limit, if anything."""
    amiss, ready_since = "", time.monotonic() - SETTLED
    while True:
        try:
            health = await look(queued_resource)
        except errors.UnavailableError as error:
            amiss, ready_since = error.what, time.monotonic()
        else:
            _require_hope(queued_resource, health)
            found = [
                trouble for slice_id in range(len(health.node_ids)) if (trouble := health.trouble(slice_id))
            ]
            if not found and health.state == "ACTIVE" and time.monotonic() - ready_since >= SETTLED:
                return ""
            if found or health.state != "ACTIVE":
                amiss, ready_since = "; ".join(found) or f"{health.name} is {health.state}", time.monotonic()
        if time.monotonic() >= limit:
            return amiss or "its nodes did not stay READY"
        report(f"waiting for the repair: {amiss}" if amiss else "waiting for the repair")
        await asyncio.sleep(min(LOOK_EVERY, max(0.0, limit - time.monotonic())))


def _require_hope(queued_resource: QueuedResource, health: Health) -> None:
    """Refuse to wait for what does not come.

    Raises:
        errors.QueuedResourceFailedError: It is on its way out, has failed, or lost a slice that is not replaced.
        errors.ConnectError: It was never ACTIVE.
    """
    status = queued_resource.status
    if not health.state:
        raise errors.QueuedResourceFailedError(f"{health.name} was deleted.", fix="Create it again.")
    if status.is_dead or health.state in {"DELETING", "SUSPENDING"}:
        error = failure(status)
        fix = f"It does not repair itself: %multislice recreate {health.name}, or qr.recreate(). {error.fix}"
        raise errors.QueuedResourceFailedError(error.what, fix=fix)
    if health.state != "ACTIVE":
        raise errors.ConnectError(
            f"{health.name} is {health.state}, not ACTIVE: there is nothing to recover yet.",
            fix=f"Wait for it first: %multislice wait {health.name}, or qr.wait().",
        )
    stopped = sorted(state for state in health.states.values() if state in {"STOPPED", "STOPPING", "HIDDEN"})
    if stopped or not health.repairs_itself:
        amiss = "; ".join(filter(None, map(health.trouble, range(len(health.node_ids)))))
        raise errors.QueuedResourceFailedError(
            f"{health.name} does not repair itself: {amiss}.",
            fix="Start it again with gcloud compute tpus tpu-vm start, then attach."
            if stopped
            else health.advice,
        )
