"""A live handle on one queued resource.

Every method that asks the API has an asynchronous twin with an `a` before its name (`anodes`, `adelete`, …),
which may be awaited on any event loop; `await qr` is the twin of `qr.wait()`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from multislice_nb._portal import iterate, loop, sync
from multislice_nb.cloud import lifecycle
from multislice_nb.cloud.cost import Usage, usage
from multislice_nb.cloud.queued_resource_core import BOOT, DELETE, RESET, WAIT, QueuedResourceCore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future
    from datetime import timedelta

    from multislice_nb.cloud.ledger import StateChange
    from multislice_nb.cloud.status import Maintenance, NodeStatus, QueuedResourceStatus

__all__ = ["QueuedResource"]


class QueuedResource(QueuedResourceCore):
    """One queued resource: look at it, wait for it, watch it, reset it, delete it.

    As a context manager it deletes itself at the end of the block, whatever happened inside.

    Attributes:
        cloud: The connection it came through.
        status: What was last seen of it; `refresh()` looks again.
    """

    def refresh(self) -> QueuedResourceStatus:
        """Look at it again.

        Raises:
            NotFoundError: It is gone.
        """
        return sync(self.arefresh)

    def wait(
        self,
        *,
        timeout: str | float | timedelta | None = WAIT,
        capacity_timeout: str | float | timedelta | None = None,
        boot_timeout: str | float | timedelta | None = BOOT,
        progress: Callable[[QueuedResourceStatus], object] | None = None,
        cancel_on_interrupt: bool = False,
    ) -> Self:
        """Wait until it is ACTIVE and all its nodes are READY.

        Args:
            timeout: For everything, in seconds or as `2h`. The request is kept when it passes.
            capacity_timeout: For finding capacity. The request is deleted when it passes.
            boot_timeout: From PROVISIONING on. The request is kept when it passes.
            progress: Called here with its status at every look.
            cancel_on_interrupt: Whether an interrupt deletes the request; it is kept otherwise.

        Raises:
            WaitTimeoutError: A deadline passed.
            QueuedResourceFailedError: It cannot become ACTIVE any more; says why.
            NotFoundError: It is gone.
            WaitInterrupted: A KeyboardInterrupt that says what became of the request.
        """
        deadlines = lifecycle.Deadlines.of(timeout, capacity_timeout, boot_timeout)
        try:
            for status in iterate(self._until_active, deadlines):
                if progress is not None:
                    progress(status)
        except KeyboardInterrupt:
            raise self._interrupted(delete=cancel_on_interrupt) from None
        return self

    def watch(self) -> Iterator[QueuedResourceStatus]:
        """Its status now and at every change of state, until it is gone."""
        return iterate(self._changes)

    def nodes(self) -> tuple[NodeStatus, ...]:
        """Its slices, in slice order; those that do not exist yet or any more are left out."""
        return sync(self.anodes)

    def maintenance(self) -> dict[str, Maintenance]:
        """Coming maintenance, by node."""
        return sync(self.amaintenance)

    def perform_maintenance(
        self, node_ids: Sequence[str] = (), *, timeout: str | float | timedelta = RESET
    ) -> tuple[str, ...]:
        """Have coming maintenance done now, at a moment of your own choice; it restarts the workers.

        Args:
            node_ids: Of these nodes; of all that have maintenance coming when left out.
            timeout: How long to wait for its end.

        Returns:
            The nodes it was done on; none where none is coming.

        Raises:
            InvalidRequestError: It has no node of that name; nothing was done.
            WaitTimeoutError: It takes longer than `timeout`.
        """
        return sync(self.aperform_maintenance, node_ids, timeout=timeout)

    def authorize_ssh(self, user: str, public_key: str) -> None:
        """Let a user log in to every worker with a key, as `gcloud … ssh` does: in the nodes' metadata.

        Args:
            user: User name on the workers.
            public_key: One line of OpenSSH, as in `~/.ssh/google_compute_engine.pub`.

        Raises:
            InvalidRequestError: This is no user's name, or no public key; nothing was changed.
        """
        sync(self.aauthorize_ssh, user, public_key)

    def reset(self, *, timeout: str | float | timedelta = RESET) -> Self:
        """Restart all its workers, which runs their startup script again; local files stay.

        Raises:
            FailedPreconditionError: It is not ACTIVE.
            WaitTimeoutError: It takes longer than `timeout`; on Google Cloud 1 to 2 minutes are usual.
        """
        sync(self.areset, timeout=timeout)
        return self

    def delete(
        self, *, force: bool = True, wait: bool = True, timeout: str | float | timedelta = DELETE
    ) -> None:
        """Delete it; with force, its slices too. Deleting what is already gone is no error.

        Args:
            force: Delete its nodes with it. Without, it must have none.
            wait: Whether to wait until it is gone and its name is free.
            timeout: How long; on Google Cloud 2 to 5 minutes are usual.

        Raises:
            FailedPreconditionError: It has nodes, and force is off.
            WaitTimeoutError: It is still there when the deadline passes.
        """
        sync(self.adelete, force=force, wait=wait, timeout=timeout)

    def recreate(self, *, timeout: str | float | timedelta = DELETE) -> Self:
        """Delete it with force, wait until it is gone, and ask for the same again.

        Raises:
            WaitTimeoutError: It is still there when the deadline passes; nothing was asked for again.
        """
        sync(self.arecreate, timeout=timeout)
        return self

    def wait_async(
        self,
        done: Callable[[Future[Self]], object] | None = None,
        *,
        timeout: str | float | timedelta | None = WAIT,
        capacity_timeout: str | float | timedelta | None = None,
        boot_timeout: str | float | timedelta | None = BOOT,
    ) -> Future[Self]:
        """Wait without blocking; the future has `done()`, `result()`, `exception()` and `cancel()`.

        Args:
            done: Called with the future when it is over, on the background loop: it must not print.
            timeout: As for `wait`.
            capacity_timeout: As for `wait`.
            boot_timeout: As for `wait`.
        """
        waiting = self.await_(timeout=timeout, capacity_timeout=capacity_timeout, boot_timeout=boot_timeout)
        future = asyncio.run_coroutine_threadsafe(waiting, loop())
        if done is not None:
            future.add_done_callback(done)
        return future

    def watch_nodes(self) -> Iterator[tuple[NodeStatus, ...]]:
        """Its slices now and whenever one changes: preempted, in maintenance, repaired, or about to be."""
        return iterate(self._node_changes)

    @property
    def usage(self) -> Usage:
        """Chip-hours so far, and cost if `%config Multislice.chip_hour_price` was set when it was created."""
        entry = self.cloud.ledger.entry_of(self.status)
        return usage(self.status, self.timeline(), entry.chip_hour_price if entry else None)

    def timeline(self) -> tuple[StateChange, ...]:
        """Every state it was seen in by any of this user's notebooks, oldest first."""
        return self.cloud.ledger.timeline(self.status)

    def touch(self) -> None:
        """Say that it is in use, which its idle limit counts from."""
        self.cloud.ledger.use(self.status)

    def _interrupted(self, *, delete: bool) -> lifecycle.WaitInterrupted:
        if delete:
            self.delete(wait=False)
            return lifecycle.WaitInterrupted(f"{self.name} is being deleted, as you asked for.")
        return lifecycle.WaitInterrupted(
            f"{self.name} is kept and still {self.state}. Delete it with qr.delete(), "
            f"%multislice delete {self.name}, or gcloud compute tpus queued-resources delete {self.name} "
            f"--zone={self.zone} --force"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.delete()
