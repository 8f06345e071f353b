"""Top-level `await` in cells, inside an engine that takes its requests on a loop of its own. Runs on the workers.

IPython would run the cell on the loop that is running, which cannot run anything else before the cell has
ended. Here cells have a second loop, kept from one to the next, and the engine's stands still meanwhile, so that
no other request gets in between.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

__all__ = ["CellLoop"]


class CellLoop:
    """Runs coroutines to their end, as a `loop_runner` of IPython's shell."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def __call__(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a cell; an interrupt ends what it awaits, and is raised once that has cleaned up.

        Raises:
            KeyboardInterrupt: It was interrupted while it waited.
        """
        if self._loop is None or self._loop.is_closed():
            self._loop = asyncio.new_event_loop()
        with _set_aside():
            task = self._loop.create_task(coroutine)
            try:
                return self._loop.run_until_complete(task)
            except KeyboardInterrupt:
                task.cancel()
                self._loop.run_until_complete(asyncio.wait({task}))
                raise


@contextlib.contextmanager
def _set_aside() -> Iterator[None]:
    """Let another loop run in the middle of what the running one does.

    asyncio has no public way to do this; these names are what other implementations of loops are given.
    """
    loop = asyncio._get_running_loop()  # noqa: SLF001
    task = asyncio.current_task(loop) if loop is not None else None
    if loop is not None and task is not None:
        asyncio.tasks._leave_task(loop, task)  # noqa: SLF001
    asyncio._set_running_loop(None)  # noqa: SLF001
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)  # noqa: SLF001
        if loop is not None and task is not None:
            asyncio.tasks._enter_task(loop, task)  # noqa: SLF001
