"""The synchronous face of the asynchronous core.

All clients, SSH connections and watchers live on one event loop in one background thread. A notebook cell
asks it for a result and blocks only itself; the kernel's own loop is never borrowed. An interrupt in the
cell cancels what it waited for and lets that clean up.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import threading
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Generator

__all__ = ["iterate", "loop", "sync"]

T = TypeVar("T")
P = ParamSpec("P")

CLEANUP_DEADLINE = 30.0
"""Seconds that an interrupted call gets to clean up before the interrupt is raised all the same."""

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def loop() -> asyncio.AbstractEventLoop:
    """The one background loop, started at first use and stopped when Python exits."""
    global _loop  # noqa: PLW0603 - one loop per process is the point
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            thread = threading.Thread(target=_serve, args=(_loop,), name="multislice_nb", daemon=True)
            thread.start()
            atexit.register(_stop, _loop, thread)
        return _loop


def _serve(background: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(background)
    background.run_forever()
    tasks = asyncio.all_tasks(background)
    for task in tasks:
        task.cancel()
    background.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    background.run_until_complete(background.shutdown_asyncgens())
    background.close()


def _stop(background: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    background.call_soon_threadsafe(background.stop)
    thread.join(timeout=5)


def sync(function: Callable[P, Coroutine[None, None, T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a coroutine function on the background loop and wait for its result.

    A KeyboardInterrupt here cancels it there, and is raised once it has cleaned up; a second one does not
    wait for that.
    """
    ended = threading.Event()

    async def run() -> T:
        try:
            return await function(*args, **kwargs)
        finally:
            ended.set()

    background = loop()
    if threading.get_ident() == getattr(background, "_thread_id", None):
        raise RuntimeError("the synchronous face was called from the background loop itself")
    future = asyncio.run_coroutine_threadsafe(run(), background)
    try:
        return future.result()
    except BaseException:
        if not future.done() and future.cancel():
            ended.wait(CLEANUP_DEADLINE)
        raise


def iterate(
    function: Callable[P, AsyncIterator[T]], *args: P.args, **kwargs: P.kwargs
) -> Generator[T, None, None]:
    """Drive an asynchronous generator from synchronous code, one item at a time.

    Leaving the loop early, an interrupt included, closes the generator, so that its `finally` runs.
    """
    source = function(*args, **kwargs)
    nothing = object()

    async def step() -> T | object:
        return await anext(source, nothing)

    async def close() -> None:
        aclose = getattr(source, "aclose", None)
        if aclose is not None:
            with contextlib.suppress(RuntimeError):  # it is running still: its own cancellation ends it
                await aclose()

    exhausted = False
    try:
        while (item := sync(step)) is not nothing:
            yield item  # type: ignore[misc]
        exhausted = True
    finally:
        # A generator that is still open when Python exits outlives the loop, which closed its source then.
        if not exhausted and not loop().is_closed():
            sync(close)
