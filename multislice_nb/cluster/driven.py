"""Long work with looks at it: asynchronous within, synchronous for a notebook."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, TypeVar

from multislice_nb._portal import iterate
from multislice_nb.cluster.progress import CellProgress

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Generator

    from multislice_nb.cluster.result import CellResult

__all__ = ["driven", "followed", "watched"]

T = TypeVar("T")
L = TypeVar("L")

TICK = 0.2
"""Seconds between two looks: five screen updates a second are what a notebook takes well."""


async def watched(
    work: Coroutine[None, None, T], look: Callable[[], L], *, changed: asyncio.Event
) -> AsyncGenerator[tuple[L | None, T | None], None]:
    """Do the work, and yield a look at it whenever it has changed; in the end, what it returned.

    Leaving early cancels the work and waits until it has cleaned up.
    """
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=TICK)
            if changed.is_set() and not task.done():
                changed.clear()
                yield look(), None
    finally:
        task.cancel()
        await asyncio.wait({task})
    yield None, task.result()


def driven(
    start: Callable[[], AsyncGenerator[tuple[L | None, T | None], None]],
    on_update: Callable[[L], None] | None,
) -> T:
    """Drive `watched` from synchronous code, handing each look to `on_update` in this thread."""
    result: T | None = None
    with contextlib.closing(iterate(start)) as items:
        for look, outcome in items:
            if look is not None and on_update is not None:
                on_update(look)
            result = outcome
    if result is None:
        raise AssertionError("the work ended without a result")
    return result


def followed(
    items: Generator[CellProgress | CellResult, None, None],
    *,
    check: bool,
    on_update: Callable[[CellProgress], None] | None,
) -> CellResult:
    """Follow an operation in this thread to its result; leaving early interrupts it."""
    result: CellResult | None = None
    with contextlib.closing(items):
        for item in items:
            if not isinstance(item, CellProgress):
                result = item
            elif on_update is not None:
                on_update(item)
    if result is None:
        raise AssertionError("an operation ends with a result")
    if check:
        result.raise_for_error()
    return result
