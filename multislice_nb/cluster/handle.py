"""A cell that runs while the notebook goes on."""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import TYPE_CHECKING

from multislice_nb import errors
from multislice_nb._portal import loop
from multislice_nb.cluster.progress import CellProgress

if TYPE_CHECKING:
    from collections.abc import Generator

    from multislice_nb.cluster.operator import Items
    from multislice_nb.cluster.result import CellResult

__all__ = ["CellHandle"]


class CellHandle:
    """A running cell: look at it, wait for it, await it, or cancel it.

    Attributes:
        name: What tracebacks call the cell.
        progress: The output so far; None until there is some.
    """

    def __init__(self, name: str, items: Items) -> None:
        self.name = name
        self.progress: CellProgress | None = None
        self._future = asyncio.run_coroutine_threadsafe(self._drive(items), loop())

    async def _drive(self, items: Items) -> CellResult:
        result: CellResult | None = None
        async for item in items:
            if isinstance(item, CellProgress):
                self.progress = item
            else:
                result = item
        if result is None:
            raise AssertionError("an operation ends with a result")
        return result

    @property
    def done(self) -> bool:
        """Whether it has ended on every worker."""
        return self._future.done()

    def result(self, timeout: float | None = None, *, check: bool = True) -> CellResult:
        """Wait for its end.

        Args:
            timeout: Seconds to wait at the most; the cell goes on after that.
            check: Whether a failure on any worker raises.

        Raises:
            errors.CellTimeoutError: It runs still after `timeout`.
            errors.WorkerError: It failed on a worker.
            errors.ClusterError: It was cancelled.
        """
        try:
            result = self._future.result(timeout)
        except concurrent.futures.CancelledError:
            raise self._cancelled() from None
        except concurrent.futures.TimeoutError as error:
            if self._future.done():
                raise
            raise errors.CellTimeoutError(
                f"{self.name} runs still after {timeout:g} s.", fix="Wait longer, or .cancel() it."
            ) from error
        if check:
            result.raise_for_error()
        return result

    def cancel(self) -> None:
        """Interrupt it on every worker. Does not wait; the cluster takes the next cell once it is free."""
        self._future.cancel()

    def __await__(self) -> Generator[None, None, CellResult]:
        try:
            result = yield from asyncio.wrap_future(self._future).__await__()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():  # who waits was cancelled too
                raise
            raise self._cancelled() from None
        result.raise_for_error()
        return result

    def _cancelled(self) -> errors.ClusterError:
        return errors.ClusterError(f"{self.name} was cancelled.", fix="Run it again if you want its result.")

    def __str__(self) -> str:
        state = "cancelled" if self._future.cancelled() else "ended" if self.done else "running"
        return f"{self.name} {state}" + (f"\n{self.progress}" if self.progress is not None else "")

    def __repr__(self) -> str:
        return f"<CellHandle {self.name}: {'ended' if self.done else 'running'}>"
