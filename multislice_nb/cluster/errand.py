"""Send a worker on an errand: a function of `multislice_nb.cluster.far`, run by the worker's own Python.

The script's source travels on standard input ahead of the request, and data follows it, so that nothing has to
be installed there, no secret is seen in a process list, and a file of any size passes in bounded memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import secrets
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multislice_nb import errors
from multislice_nb.cluster.ssh import talking

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    import asyncssh

    from multislice_nb.cluster.inventory import Worker
    from multislice_nb.cluster.ssh import Connections

__all__ = ["MARK", "ErrandError", "ended", "errand", "errands", "opened"]

PYTHON = 'p="$HOME/.multislice_nb/venv/bin/python"; [ -x "$p" ] || p=python3; exec "$p"'
"""Shell words that become the Python of a worker: that of our environment where there is one."""

# Reads the source's length, the source, and a line with the request; what follows on stdin is the function's.
# Its last words are one line on stderr: the answer or the error as JSON, behind a mark.
# It leaves without a look back, for a thread may still wait on stdin, which Python would take for a deadlock.
_START = """
import sys
stream = sys.stdin.buffer
size, mark = stream.readline().decode()[:-1].split(" ")
source = stream.read(int(size))
import json
request = json.loads(stream.readline())
space = {"__name__": "errand"}
try:
    exec(compile(source, "errand", "exec"), space)
    last = {"answer": space[sys.argv[1]](request, stream)}
except Exception as error:
    last = {"error": type(error).__name__, "text": str(error), "errno": getattr(error, "errno", None)}
import os
sys.stdout.flush()
sys.stderr.write(mark + json.dumps(last) + "\\n")
sys.stderr.flush()
os._exit(0)
"""
MARK = f"\x1e{secrets.token_hex(8)}:"
"""What the worker's last words begin with. Nothing that runs there can know it, and so print it."""


class ErrandError(Exception):
    """What a function on a worker raised; the caller says what it means.

    Attributes:
        worker: Where.
        name: The class of the exception there.
    """

    def __init__(self, worker: Worker, name: str, text: str) -> None:
        super().__init__(text)
        self.worker = worker
        self.name = name


@functools.cache
def _source(module: str) -> bytes:
    return (Path(__file__).parent / "far" / f"{module}.py").read_bytes()


def _head(module: str, request: Mapping[str, Any]) -> bytes:
    source = _source(module)
    return b"%d %s\n%s%s\n" % (len(source), MARK.encode(), source, json.dumps(dict(request)).encode())


@contextlib.asynccontextmanager
async def opened(
    connections: Connections, worker: Worker, function: str, request: Mapping[str, Any]
) -> AsyncIterator[asyncssh.SSHClientProcess[bytes]]:
    """A process on a worker that runs `module:function`, with standard streams for its data.

    Its end is awaited with `ended`; leaving the context closes it, whatever it does.
    """
    module, _, name = function.partition(":")
    command = f"{PYTHON} -I -S -c {shlex.quote(_START)} {shlex.quote(name)}"
    process = await connections.open_process(worker.rank, command)
    try:
        process.stdin.write(_head(module, request))
        yield process
    finally:
        process.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5):
                await process.wait_closed()


async def ended(worker: Worker, process: asyncssh.SSHClientProcess[bytes]) -> Any:
    """The answer of a process, once it has ended.

    Raises:
        ErrandError: The function raised, or the process ended without a word.
    """
    complaint = (await process.stderr.read()).decode(errors="replace")
    await process.wait_closed()
    before, mark, last = complaint.rpartition(MARK)
    if not mark:
        text = before.strip() or last.strip() or f"exit status {process.exit_status}"
        raise ErrandError(worker, "Silence", text[-800:])
    told = json.loads(last)
    if "error" in told:
        raise ErrandError(worker, told["error"], told["text"])
    return told["answer"]


async def errand(
    connections: Connections,
    worker: Worker,
    function: str,
    request: Mapping[str, Any],
    *,
    data: Iterable[bytes] = (),
    deadline: float = 120,
) -> Any:
    """Run a function on one worker, feed it, and return its answer.

    Args:
        connections: Open connections.
        worker: Where.
        function: As `files:survey`, of a module in `multislice_nb.cluster.far`.
        request: What it is asked, as JSON can carry it.
        data: What it reads on standard input.
        deadline: Seconds.

    Raises:
        ErrandError: It raised there.
        errors.ConnectError: The connection was lost, or the deadline passed.
    """
    async with (
        talking(worker, function, deadline),
        opened(connections, worker, function, request) as process,
    ):
        try:
            for chunk in data:
                process.stdin.write(chunk)
                await process.stdin.drain()
            process.stdin.write_eof()
        except (BrokenPipeError, ConnectionResetError):
            pass  # it ended before it had read all: its last words say why
        return await ended(worker, process)


async def errands(
    connections: Connections,
    requests: Mapping[Worker, Mapping[str, Any]],
    function: str,
    *,
    deadline: float = 120,
) -> dict[Worker, Any]:
    """The same function on many workers at once.

    Returns:
        By worker its answer, or the `ErrandError` or `errors.ConnectError` that it ended in.
    """

    async def one(worker: Worker, request: Mapping[str, Any]) -> Any:
        try:
            return await errand(connections, worker, function, request, deadline=deadline)
        except (ErrandError, errors.ConnectError) as error:
            return error

    answers = await asyncio.gather(*(one(worker, request) for worker, request in requests.items()))
    return dict(zip(requests, answers, strict=True))
