"""From the background loop to the kernel's own, where widgets may be changed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["KernelLoop"]


class KernelLoop:
    """The loop of the thread that makes this object: the kernel's, when a cell or a widget makes it.

    Without a running loop, as in a script, calls are made when `drain` is called.
    """

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []
        self._loop: Any = _running_loop()

    def call(self, function: Callable[[], None]) -> None:
        """Have it called on that loop, soon; from any thread."""
        if self._loop is None:
            self._waiting.append(function)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function)

    def later(self, seconds: float, function: Callable[[], None]) -> Any:
        """Have it called on that loop after a while; from its own thread. None without a running loop."""
        return None if self._loop is None else self._loop.call_later(seconds, function)

    def drain(self) -> None:
        """Make the calls that wait for want of a loop."""
        while self._waiting:
            self._waiting.pop(0)()


def _running_loop() -> Any:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        pass
    try:
        from IPython import get_ipython
    except ImportError:
        return None
    kernel = getattr(get_ipython(), "kernel", None)
    return getattr(getattr(kernel, "io_loop", None), "asyncio_loop", None)
