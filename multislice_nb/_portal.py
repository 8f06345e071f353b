"""The synchronous face of the asynchronous core.

All clients, SSH connections and watchers live on one event loop in one background thread. A notebook cell
asks it for a result and blocks only itself; the kernel's own loop is never borrowed. An interrupt in the
cell cancels what it waited for.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import threading
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from anyio.from_thread import BlockingPortal

T = TypeVar("T")
P = ParamSpec("P")

_lock = threading.Lock()
_exits = contextlib.ExitStack()
_portal: BlockingPortal | None = None


def portal() -> BlockingPortal:
    """The one background loop, started at first use and stopped when Python exits."""
    global _portal  # noqa: PLW0603 - one loop per process is the point
    with _lock:
        if _portal is None:
            from anyio.from_thread import start_blocking_portal

            _portal = _exits.enter_context(start_blocking_portal("asyncio", name="multislice_nb"))
            atexit.register(_exits.close)
        return _portal


def sync(function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a coroutine function on the background loop and wait for its result.

    A KeyboardInterrupt here cancels it there, and is raised once it has cleaned up.
    """
    future = portal().start_task_soon(functools.partial(function, *args, **kwargs))
    try:
        return future.result()
    except BaseException:
        if not future.done():
            future.cancel()
        raise


def iterate(function: Callable[P, AsyncIterator[T]], *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
    """Drive an asynchronous generator from synchronous code, one item at a time.

    Leaving the loop early, an interrupt included, closes the generator, so that its `finally` runs.
    """
    source = function(*args, **kwargs)

    async def step() -> tuple[bool, T | None]:
        try:
            return True, await anext(source)
        except StopAsyncIteration:
            return False, None

    async def close() -> None:
        aclose = getattr(source, "aclose", None)
        if aclose is not None:
            await aclose()

    try:
        while True:
            more, item = sync(step)
            if not more:
                return
            yield item  # type: ignore[misc]
    finally:
        sync(close)
