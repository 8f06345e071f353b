"""Everything of cloud/ runs on the one background loop; these bring calls there from wherever they are made.

gRPC channels belong to the loop they were made on. A coroutine of ours awaited on that loop runs as it is;
awaited on another, such as the kernel's own, it runs at home and the caller waits.
"""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from multislice_nb._portal import loop

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine

T = TypeVar("T")
P = ParamSpec("P")

__all__ = ["at_home", "iterating_at_home"]

_NOTHING = object()


def at_home(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """A coroutine function that runs on the background loop, whichever loop awaits it."""

    @functools.wraps(function)
    async def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        home = loop()
        if asyncio.get_running_loop() is home:
            return await function(*args, **kwargs)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(function(*args, **kwargs), home))

    return wrapper


def iterating_at_home(function: Callable[P, AsyncGenerator[T, None]]) -> Callable[P, AsyncIterator[T]]:
    """The same for an asynchronous generator; leaving it early closes it at home."""

    @functools.wraps(function)
    async def wrapper(*args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        source = function(*args, **kwargs)

        async def step() -> Any:
            return await anext(source, _NOTHING)

        try:
            while (item := await at_home(step)()) is not _NOTHING:
                yield item
        finally:
            await at_home(source.aclose)()

    return wrapper
