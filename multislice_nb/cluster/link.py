"""The notebook's end of ipyparallel: workers by rank, replies as futures, output as it comes.

Engine ids stay in this file: they change when an engine starts anew, ranks do not.
"""

from __future__ import annotations

import asyncio
import collections
import time
from typing import TYPE_CHECKING, Any

import ipyparallel
from ipyparallel.client.client import unpack_message
from traitlets import Instance

from multislice_nb import errors
from multislice_nb.cluster.asked import Asked
from multislice_nb.cluster.inventory import ranks_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

__all__ = ["Link", "Lost", "Pending"]

CHECK_EVERY = 3.0
"""Seconds between two looks at whether the engines that are awaited still live."""


class Lost(Exception):  # noqa: N818 - it is an outcome between two files here, and never reaches a user
    """The engine's process ended while a request was with it."""


class _Client(ipyparallel.Client):  # type: ignore[misc]  # ipyparallel ships no types
    """A client that keeps each message of output as it came.

    The stock client joins a stream's whole text anew at every message, which is quadratic.
    """

    outputs = Instance(collections.defaultdict)

    def _outputs_default(self) -> collections.defaultdict[str, collections.deque[dict[str, Any]]]:
        return collections.defaultdict(collections.deque)

    @unpack_message  # type: ignore[untyped-decorator]  # ipyparallel ships no types
    def _dispatch_iopub(self, msg: dict[str, Any]) -> None:
        parent = msg["parent_header"]
        if not parent or parent["session"] != self.session.session:
            return
        kind, message_id = msg["header"]["msg_type"], parent["msg_id"]
        if kind == "status":
            done = self._output_futures.get(message_id)
            if msg["content"]["execution_state"] == "idle" and done is not None and not done.done():
                done.set_result(None)
        elif message_id in self._output_futures:
            self.outputs[message_id].append({"type": kind, **msg["content"]})


def _refused(error: Any) -> dict[str, Any]:
    """A reply for what failed in the engine outside our agent, as by an interrupt before it began."""
    now = time.time()
    told = {"ename": error.ename, "evalue": error.evalue, "line_number": None, "line": None, "traceback": ""}
    return {"ok": False, "error": told, "started": now, "finished": now}


class Pending:
    """One request on one worker: its reply, and its output so far."""

    def __init__(self, client: _Client, message: Any) -> None:
        self._client = client
        self._message = message
        self._id: str = message.msg_id
        self._output_done = message.output

    async def reply(self) -> Any:
        """What the function returned.

        Raises:
            Lost: The engine died, or could not run it.
        """
        # Shielded, for ipyparallel does not expect its own futures to be cancelled.
        value = await asyncio.shield(asyncio.wrap_future(self._message))
        if isinstance(value, ipyparallel.error.RemoteError) and value.ename != "EngineError":
            return _refused(value)
        if isinstance(value, Exception):
            raise Lost("the engine died" if "died" in str(value) else str(value)) from value
        return value

    async def output_complete(self, deadline: float) -> None:
        """Wait until the engine said that no more output comes, or for `deadline` seconds."""
        if not self._output_done.done():
            await asyncio.wait({asyncio.wrap_future(self._output_done)}, timeout=deadline)

    @property
    def done(self) -> bool:
        """Whether the reply is there."""
        return bool(self._message.done())

    def take_output(self) -> list[dict[str, Any]]:
        """The messages of output that came since the last call, in order."""
        queue = self._client.outputs.get(self._id)
        taken: list[dict[str, Any]] = []
        while queue:
            taken.append(queue.popleft())
        return taken

    def forget(self) -> None:
        """Drop what the client keeps of this request."""
        self._client.outputs.pop(self._id, None)


class Link:
    """A connection to the controller, with the gang's workers by rank."""

    def __init__(self, client: _Client) -> None:
        self.client = client
        self._engines: dict[int, int] = {}

    @classmethod
    async def connect(cls, connection: Mapping[str, Any], *, deadline: float = 20) -> Link:
        """Connect to a controller whose ports are on this machine's loopback.

        Raises:
            errors.StartError: It did not answer within `deadline` seconds.
        """
        info = dict(connection) | {"interface": "tcp://127.0.0.1", "location": "127.0.0.1", "ssh": ""}
        try:
            client = await asyncio.to_thread(_Client, info, timeout=deadline)
        except (TimeoutError, OSError) as error:
            raise errors.StartError(
                f"The controller on worker 0 did not answer within {deadline:.0f} s: {error}",
                fix="Attach again; if it stays so, %multislice restart starts the gang anew.",
            ) from error
        return cls(client)

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks whose engine is registered now."""
        alive = set(self.client.ids)
        return tuple(sorted(rank for rank, engine in self._engines.items() if engine in alive))

    async def find_ranks(
        self, gang: str, expected: int, *, deadline: float, check: Callable[[], Awaitable[None]]
    ) -> None:
        """Wait until all engines of a gang are registered, and learn which rank each has.

        Args:
            gang: The id that they were started with.
            expected: How many there are.
            deadline: Seconds to wait at the most.
            check: Awaited every few seconds; raises if there is nothing to wait for any more.

        Raises:
            errors.StartError: Some did not come within `deadline` seconds; names their ranks.
        """
        known: dict[int, int] = {}
        asked: set[int] = set()
        limit = time.monotonic() + deadline
        next_check = time.monotonic() + CHECK_EVERY
        while len(known) < expected:
            fresh = [engine for engine in self.client.ids if engine not in asked]
            asked.update(fresh)
            requests = self._request(fresh, "describe") if fresh else []
            for engine, request in zip(fresh, requests, strict=True):
                try:
                    async with asyncio.timeout(max(1.0, limit - time.monotonic())):
                        description = await request.reply()
                except (Lost, TimeoutError):
                    continue  # an engine of an earlier gang on its way out
                finally:
                    request.forget()
                if description["gang"] == gang:
                    known[description["rank"]] = engine
            if time.monotonic() > next_check:
                await check()
                next_check = time.monotonic() + CHECK_EVERY
            if time.monotonic() > limit:
                missing = ranks_text(set(range(expected)) - set(known))
                raise errors.StartError(
                    f"{len(known)} of {expected} engines came within {deadline:.0f} s; missing: {missing}.",
                    fix="The engine's log on that worker says why: ~/.multislice_nb/clusters/*/engine.log.",
                )
            if len(known) < expected:
                await asyncio.sleep(0.05)
        self._engines = known

    @property
    def identities(self) -> dict[int, str]:
        """By rank, the identity under which its engine is registered, for `resume`."""
        by_engine = {engine: uuid for engine, uuid in self.client._engines.items() if isinstance(engine, int)}  # noqa: SLF001 - it has no public face
        return {rank: by_engine[engine] for rank, engine in self._engines.items()}

    def resume(self, identities: Mapping[int, str]) -> None:
        """Take the ranks of a gang from an earlier link, without asking its engines, which may be busy."""
        engines = {uuid: engine for engine, uuid in self.client._engines.items() if isinstance(engine, int)}  # noqa: SLF001 - as above
        self._engines = {rank: engines[uuid] for rank, uuid in identities.items() if uuid in engines}

    def submit(self, ranks: Sequence[int], function: str, *args: Any) -> dict[int, Pending]:
        """Ask some workers' agents to run one of their functions.

        The request is serialised once, whatever their number.

        Returns:
            What is pending, by rank, without the ranks that have no engine any more.
        """
        alive = set(self.client.ids)
        known = [rank for rank in ranks if self._engines.get(rank) in alive]
        engines = [self._engines[rank] for rank in known]
        return dict(zip(known, self._request(engines, function, *args), strict=True)) if engines else {}

    def _request(self, engines: Sequence[int], function: str, *args: Any) -> list[Pending]:
        view = self.client.direct_view(targets=list(engines), block=False)
        result = view.apply_async(Asked(function), *args)
        # The public result hides whether it was the engine that died.
        messages = result._children  # noqa: SLF001
        return [Pending(self.client, message) for message in messages]

    def signal(self, ranks: Sequence[int], name: str) -> None:
        """Have the nannies of some ranks signal their engine, as in `SIGINT`. Does not wait."""
        alive = set(self.client.ids)
        engines = [self._engines[rank] for rank in ranks if self._engines.get(rank) in alive]
        if engines:
            self.client.send_signal(name, targets=engines, block=False)

    async def close(self) -> None:
        """Close the sockets; engines and controller run on."""
        await asyncio.to_thread(self.client.close, 0)
