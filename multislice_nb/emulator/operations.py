"""Long-running operations: started, polled, waited for, cancelled."""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING

from multislice_nb.emulator.clock import Clock, timestamp
from multislice_nb.emulator.model import Operation, Store, copy
from multislice_nb.emulator.rpc import ApiError, Json

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from multislice_nb.emulator.names import Parent

log = logging.getLogger(__name__)

# Old operations are forgotten from this number on, the oldest first.
_KEPT = 5000


class Operations:
    """Runs work as operations.

    Attributes:
        delay: Seconds by which every operation ends late; a fault.
        dropped: How many of the next operations will never end; a fault.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self.delay = 0.0
        self.dropped = 0

    def start(
        self, parent: Parent, verb: str, target: str, version: str, work: Awaitable[tuple[str, Json]]
    ) -> Operation:
        """Start work as an operation.

        Args:
            parent: Its scope.
            verb: What it does, as the metadata says it.
            target: The full name of what it does it to.
            version: The API version that asked, which decides the type of the result.
            work: Gives the result's message name and document; an ApiError from it becomes the error.
        """
        name = parent.child("operations", f"operation-{secrets.token_hex(8)}")
        metadata: Json = {
            "createTime": timestamp(self._clock.now()),
            "target": target,
            "verb": verb,
            "cancelRequested": False,
            "apiVersion": version,
        }
        operation = Operation(name, version, {"name": name, "metadata": metadata, "done": False})
        self._store.operations[name] = operation
        drop = self.dropped > 0
        self.dropped -= drop
        operation.task = asyncio.get_running_loop().create_task(self._run(operation, work, drop=drop))
        self._forget_old()
        return operation

    async def _run(self, operation: Operation, work: Awaitable[tuple[str, Json]], *, drop: bool) -> None:
        error: ApiError | None = None
        try:
            operation.result = await work
        except ApiError as refused:
            error = refused
        except Exception:
            log.exception("operation %s failed", operation.name)
            error = ApiError("INTERNAL", "Internal error encountered.")
        if drop:
            return
        if self.delay:
            await asyncio.sleep(self.delay)
        self.finish(operation, error)

    def finish(self, operation: Operation, error: ApiError | None = None) -> None:
        """End an operation."""
        if operation.done:
            return
        if error is not None:
            operation.result = None
            operation.data["error"] = error.as_status()
        elif operation.result is not None:
            operation.result = (operation.result[0], copy(operation.result[1]))
        operation.data["metadata"]["endTime"] = timestamp(self._clock.now())
        operation.data["done"] = True
        operation.finished.set()

    def cancel(self, operation: Operation) -> None:
        """Ask an operation to stop.

        As with the service this is best effort: work that has begun goes on to a clean end. An operation whose
        work is over and that only failed to say so ends as cancelled.
        """
        operation.data["metadata"]["cancelRequested"] = True
        if operation.task is not None and operation.task.done():
            self.finish(operation, ApiError("CANCELLED", "The operation was cancelled."))

    def delete(self, operation: Operation) -> None:
        """Forget an operation; its work goes on."""
        self._store.operations.pop(operation.name, None)

    def _forget_old(self) -> None:
        if len(self._store.operations) <= _KEPT:
            return
        for name, operation in list(self._store.operations.items()):
            if len(self._store.operations) <= _KEPT:
                return
            if operation.done:
                del self._store.operations[name]
