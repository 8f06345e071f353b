"""Calls of the asynchronous core that report their steps, followed from the cell's own thread.

Reports come on the background thread, where nothing may be printed: an output would land in whichever cell runs
at that moment. Here they are collected there and handed out here.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from multislice_nb import _portal

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine

__all__ = ["Look", "follow"]

T = TypeVar("T")

TICK = 0.2
"""Seconds between two looks at a call that reports nothing."""


@dataclass(frozen=True, slots=True)
class Look(Generic[T]):
    """How far a call is.

    Attributes:
        step: What it reported last.
        seconds: How long it has run.
    """

    step: str
    seconds: float


def follow(
    start: Callable[[Callable[[str], None]], Coroutine[Any, Any, T]], show: Callable[[Look[T]], None]
) -> T:
    """Run a coroutine function on the background loop and show its steps in this thread.

    Args:
        start: Takes a function that it calls with each step.
        show: Called here with the last step, at every step and five times a second in between.

    Returns:
        What it returned. An interrupt here cancels it and waits until it has cleaned up.
    """
    done: list[T] = []
    with contextlib.closing(_portal.iterate(_looks, start, done)) as looks:
        for look in looks:
            show(look)
    return done[0]


async def _looks(
    start: Callable[[Callable[[str], None]], Coroutine[Any, Any, T]], done: list[T]
) -> AsyncGenerator[Look[T], None]:
    steps: list[str] = [""]
    began = time.monotonic()
    task = asyncio.ensure_future(start(steps.append))
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=TICK)
            yield Look(steps[-1], time.monotonic() - began)
        done.append(await task)
    finally:
        task.cancel()
        await asyncio.wait({task})
