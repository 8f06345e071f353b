"""Bring one bundle to many workers while the notebook sends it once.

The notebook's uplink is slow and the workers' network is fast: the first worker gets the bundle over SSH, and
every worker that has it gives it to others, so the number of givers doubles. The bundle's hash, which SSH
carries, says whether what came over the workers' own network is what was sent. Where a worker cannot reach
another, the notebook sends to it itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import deque
from typing import TYPE_CHECKING, Any

from multislice_nb import errors
from multislice_nb.cluster.errand import ErrandError, errand, opened

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from multislice_nb.cluster.inventory import Worker
    from multislice_nb.cluster.ssh import Connections
    from multislice_nb.cluster.tree import Bundle

__all__ = ["Spread"]

AT_ONCE = 2
"""Workers that one worker gives to at the same time."""

PATIENCE = 10.0
"""Seconds until a worker that does not answer another's request counts as out of its reach."""


class Spread:
    """One bundle on its way.

    Args:
        connections: Open connections.
        identity: Names the push on the workers.
        bundle: What is sent.
        deadline: Seconds for each single transfer.
        step: Called whenever something has moved on.
    """

    def __init__(
        self,
        connections: Connections,
        identity: str,
        bundle: Bundle,
        *,
        deadline: float,
        step: Callable[[], None] = lambda: None,
    ) -> None:
        self._connections = connections
        self._request = {"id": identity, "sha256": bundle.sha256}
        self._bundle = bundle
        self._deadline = deadline
        self._step = step
        self._uplink = asyncio.Lock()
        self._reachable = True
        self.sent = 0
        self.direct: list[int] = []
        self.arrived: list[int] = []

    async def to(self, workers: Sequence[Worker]) -> dict[Worker, Exception]:
        """Bring the bundle to these workers.

        Returns:
            Those that could not take it, and why.
        """
        waiting = deque(workers)
        failed: dict[Worker, Exception] = {}
        running: dict[asyncio.Task[None], tuple[Worker, str | None]] = {}
        giving: dict[str, int] = {}
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(_cancel, running)
            while waiting or running:
                self._hand_out(waiting, running, giving)
                ended, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in ended:
                    worker, giver = running.pop(task)
                    if giver is not None:
                        giving[giver] -= 1
                    try:
                        task.result()
                    except (ErrandError, errors.ConnectError, OSError) as error:
                        if giver is None:
                            failed[worker] = error
                            continue
                        self._reachable = bool(giving) and len(self.arrived) > len(self.direct)
                        running[asyncio.create_task(self._upload(worker))] = (worker, None)
                        continue
                    self.arrived.append(worker.rank)
                    self._step()
                    if waiting and self._reachable:
                        url = await stack.enter_async_context(self._served(worker))
                        self._reachable = url is not None
                        if url is not None:
                            giving[url] = 0
        return failed

    def _hand_out(
        self,
        waiting: deque[Worker],
        running: dict[asyncio.Task[None], tuple[Worker, str | None]],
        giving: dict[str, int],
    ) -> None:
        """Give those that wait something to do: take from a worker with a hand free, or from the notebook."""
        if self._reachable:
            for giver in list(giving):
                while waiting and giving[giver] < AT_ONCE:
                    worker = waiting.popleft()
                    giving[giver] += 1
                    running[asyncio.create_task(self._fetch(worker, giver))] = (worker, giver)
        if waiting and not running:
            worker = waiting.popleft()
            running[asyncio.create_task(self._upload(worker))] = (worker, None)

    async def _upload(self, worker: Worker) -> None:
        async with self._uplink:  # two at once would only halve each other
            await errand(
                self._connections,
                worker,
                "files:receive",
                self._request,
                data=self._counted(),
                deadline=self._deadline,
            )
        self.direct.append(worker.rank)

    def _counted(self) -> Iterator[bytes]:
        for chunk in self._bundle.chunks():
            yield chunk
            self.sent += len(chunk)
            self._step()

    async def _fetch(self, worker: Worker, url: str) -> None:
        request: dict[str, Any] = self._request | {"url": url, "patience": PATIENCE}
        await errand(self._connections, worker, "files:fetch", request, deadline=self._deadline)

    @contextlib.asynccontextmanager
    async def _served(self, worker: Worker) -> AsyncIterator[str | None]:
        """Have a worker give the bundle to whoever has the address with its token; None if it cannot listen."""
        token = secrets.token_urlsafe(24)
        request = self._request | {"address": worker.address, "token": token}
        async with opened(self._connections, worker, "files:serve", request) as process:
            line = (await process.stdout.readline()).decode().strip()
            yield f"http://{worker.address}:{line}/{token}" if line else None


async def _cancel(running: dict[asyncio.Task[None], tuple[Worker, str | None]]) -> None:
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
