"""Asking in several zones or for several kinds of capacity, in order or all at once; one is kept.

Every request made here is in the ledger before it is sent. Whatever ends the search, an interrupt included,
deletes all requests but the winner; if the process dies, the next `reclaim` finds them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from multislice_nb.cloud import advice
from multislice_nb.cloud.field_types import are_texts, words
from multislice_nb.cloud.provider import REQUEST_LABEL
from multislice_nb.cloud.times import parse_duration, short
from multislice_nb.errors import CloudError, InvalidRequestError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from datetime import timedelta

    from multislice_nb.cloud.queued_resource import QueuedResource
    from multislice_nb.cloud.request import QueuedResourceRequest

    Create = Callable[[QueuedResourceRequest], Coroutine[Any, Any, QueuedResource]]

__all__ = ["candidates", "in_order", "race"]

CAPACITIES = ("on-demand", "spot", "reserved")

_deletions: set[asyncio.Task[None]] = set()
"""Those that take longer than their search: the loop alone would not keep them."""


def candidates(
    request: QueuedResourceRequest, zones: str | Sequence[str], capacities: str | Sequence[str]
) -> tuple[QueuedResourceRequest, ...]:
    """The request in each zone with each kind of capacity, capacities of one zone together.

    Two requests in one zone need two names, and so do their nodes: all but the first kind of capacity get its
    name appended.

    Raises:
        InvalidRequestError: A kind of capacity is unknown, or one is named twice.
    """
    for field, given in (("zones", zones), ("capacities", capacities)):
        if not are_texts(given):
            raise InvalidRequestError(f"{field} cannot be {given!r}.", fix="Give a list of texts.")
    zones, capacities = words(zones), words(capacities)
    unknown = [kind for kind in capacities if kind not in CAPACITIES]
    if unknown:
        raise InvalidRequestError(
            f"Capacity {unknown[0]!r} is unknown.", fix=f"Use {', '.join(CAPACITIES)}, in the order to try."
        )
    if len(set(zones)) < len(zones) or len(set(capacities)) < len(capacities):
        raise InvalidRequestError("A zone or a kind of capacity is named twice.", fix="Name each once.")
    found = []
    for zone in zones or (str(request.zone),):
        for index, kind in enumerate(capacities or (request.capacity,)):
            changes: dict[str, Any] = {"zone": zone}
            if index:
                names = {name: getattr(request, name) for name in ("name", "node_id", "node_prefix")}
                changes |= {name: f"{value}-{kind}" for name, value in names.items() if value is not None}
            if capacities:
                changes |= {"spot": kind == "spot", "reserved": kind == "reserved", "best_effort": False}
            if capacities and kind != "reserved":
                changes |= {"reservation": None, "reservation_host": None}
            found.append(request.replace(**changes))
    return tuple(found)


async def in_order(
    create: Create, requests: Sequence[QueuedResourceRequest], patience: str | float | timedelta
) -> QueuedResource:
    """Ask one after the other, each for `patience`; the first that gets capacity is kept.

    Raises:
        UnavailableError: None got any; says what became of each.
    """
    told, left = [], []
    seconds = parse_duration(patience).total_seconds()
    for request in requests:
        made: QueuedResource | None = None
        try:
            made = await create(request)
            async with asyncio.timeout(seconds):
                await _granted(made)
        except TimeoutError:
            told.append(f"{_place(request)}: no capacity within {short(seconds)}")
            left += await _drop([made])
        except CloudError as error:
            told.append(f"{_place(request)}: {error.what}")
            left += await _drop([made])
        except BaseException:
            await _drop([made])
            raise
        else:
            return made
    raise _nowhere(requests[0].name, told, left)


async def race(
    create: Create, requests: Sequence[QueuedResourceRequest], patience: str | float | timedelta
) -> QueuedResource:
    """Ask everywhere at once; the first that gets capacity is kept, the others are deleted.

    Raises:
        UnavailableError: None got any within `patience`; says what became of each.
    """
    seconds = parse_duration(patience).total_seconds()
    made: list[QueuedResource | None] = [None] * len(requests)
    told = [""] * len(requests)

    async def run(index: int) -> QueuedResource | None:
        try:
            made[index] = await create(requests[index])
            await _granted(made[index])
        except CloudError as error:
            told[index] = f"{_place(requests[index])}: {error.what}"
            return None
        return made[index]

    runners = [asyncio.create_task(run(index)) for index in range(len(requests))]
    winner: QueuedResource | None = None
    try:
        async with asyncio.timeout(seconds):
            winner = await _first(runners)
    except TimeoutError:
        told = [text or f"{_place(r)}: no capacity in time" for text, r in zip(told, requests, strict=True)]
    finally:
        # A create call on its way is let through, so that what it makes is known and can be deleted.
        await _settle(runners, made)
        left = await _drop([handle for handle in made if handle is not winner])
    if winner is None:
        raise _nowhere(requests[0].name, told, left)
    return winner


async def _first(runners: list[asyncio.Task[QueuedResource | None]]) -> QueuedResource | None:
    """The first to get capacity; of several in the same instant, the one that was asked for first."""
    waiting = set(runners)
    while waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for runner in runners:
            if runner in done and runner.result() is not None:
                return runner.result()
    return None


async def _settle(
    runners: list[asyncio.Task[QueuedResource | None]], made: list[QueuedResource | None]
) -> None:
    """Stop those that only wait; let those that are still being asked for get their answer."""
    for runner, handle in zip(runners, made, strict=True):
        if handle is not None:
            runner.cancel()
    ended = asyncio.gather(*runners, return_exceptions=True)
    while not ended.done():
        for runner, handle in zip(runners, made, strict=True):
            if handle is not None:
                runner.cancel()
        await asyncio.wait([ended], timeout=0.05)


async def _granted(handle: QueuedResource | None) -> None:
    """Return when it has capacity; raise when it never will."""
    assert handle is not None  # noqa: S101 - the caller made it just before
    async for status in handle.awatch():
        if status.is_dead:
            raise advice.failure(status)
        if not status.is_waiting and status.state not in {"DELETING", "SUSPENDING"}:
            return
    raise UnavailableError(f"{handle.name} was deleted by somebody else.", fix="Ask for it again.")


async def _drop(handles: Sequence[QueuedResource | None]) -> list[str]:
    """Delete these, also when this very task is being cancelled; returns a line for each that could not be."""
    deletions = {asyncio.create_task(_delete(handle)): handle for handle in handles if handle is not None}
    if not deletions:
        return []
    for deletion in deletions:
        _deletions.add(deletion)
        deletion.add_done_callback(_deletions.discard)
    done, _ = await asyncio.wait(deletions, timeout=25.0)
    failed = [(handle, each.exception()) for each, handle in deletions.items() if each in done]
    return [f"{handle.name} in {handle.zone}: {error}" for handle, error in failed if error is not None]


async def _delete(handle: QueuedResource) -> None:
    """Delete it; what cannot be deleted now is left to the janitor, and to the next `connect()`."""
    try:
        await handle.adelete()
    except Exception:
        request_id = handle.status.labels.get(REQUEST_LABEL, "")
        handle.cloud.janitor.condemn(request_id, "it lost the search for capacity")
        raise


def _place(request: QueuedResourceRequest) -> str:
    return f"{request.zone} ({request.capacity})"


def _nowhere(name: str, told: Sequence[str], left: Sequence[str]) -> UnavailableError:
    tried = "\n".join(f"  - {line}" for line in told if line)
    rest = (
        "\n".join(["\nNot deleted so far, and tried again:", *(f"  - {line}" for line in left)])
        if left
        else ""
    )
    return UnavailableError(
        f"{name} got no capacity anywhere, and {'not ' * bool(left)}all its requests were deleted:\n{tried}{rest}",
        fix="Leave one request waiting (create without zones), try smaller slices, or other capacity.",
    )
