"""One loopback port for everything: the first bytes of a connection say whether it is gRPC or HTTP/1.

TLS is gRPC too: the official client's default. HTTP/1 connections are handed to aiohttp as they are; gRPC's are passed on to the gRPC server, which listens on
a unix socket in a folder of this user's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING

from multislice_nb.emulator import network

if TYPE_CHECKING:
    from collections.abc import Callable

_PREFACE = b"PRI"
_TLS_HANDSHAKE = b"\x16"
_PATIENCE = 10.0
_CHUNK = 65536
_MAX_CONNECTIONS = 2000


class Wire:
    """The API port."""

    def __init__(self, http: Callable[[], asyncio.Protocol], grpc_path: str, tls_path: str) -> None:
        self._http = http
        self._grpc_path = grpc_path
        self._tls_path = tls_path
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: socket.socket | None = None

    def open(self) -> int:
        """Listen, and return the port."""
        self._server = network.listening_socket("127.0.0.1", 0)
        asyncio.get_running_loop().add_reader(self._server, self._accept)
        return int(self._server.getsockname()[1])

    def _accept(self) -> None:
        if self._server is None:
            return
        try:
            client, _ = self._server.accept()
        except OSError:
            return
        if len(self._tasks) >= _MAX_CONNECTIONS:
            client.close()
            return
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = asyncio.get_running_loop().create_task(self._sort(client))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _sort(self, client: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_PATIENCE):
                start = await _peek(client)
            if not start:
                client.close()
            elif start == _PREFACE:
                await self._pass_on(client, self._grpc_path)
            elif start[:1] == _TLS_HANDSHAKE:
                await self._pass_on(client, self._tls_path)
            else:
                await loop.connect_accepted_socket(self._http, client)
        except (OSError, TimeoutError):
            client.close()
        except asyncio.CancelledError:
            client.close()
            raise

    async def _pass_on(self, client: socket.socket, path: str) -> None:
        near_reader, near_writer = await asyncio.open_connection(sock=client)
        far_reader, far_writer = await asyncio.open_unix_connection(path)
        ways = [
            asyncio.ensure_future(_copy(near_reader, far_writer)),
            asyncio.ensure_future(_copy(far_reader, near_writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            for writer in (near_writer, far_writer):
                writer.close()

    async def close(self) -> None:
        """Stop listening and drop all connections."""
        if self._server is not None:
            asyncio.get_running_loop().remove_reader(self._server)
            self._server.close()
            self._server = None
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


async def _peek(client: socket.socket) -> bytes:
    """The first three bytes, left where they are."""
    loop = asyncio.get_running_loop()
    while True:
        ready = loop.create_future()
        loop.add_reader(client, _wake, ready)
        try:
            await ready
        finally:
            loop.remove_reader(client)
        start = client.recv(len(_PREFACE), socket.MSG_PEEK)
        if len(start) in {0, len(_PREFACE)} or not _PREFACE.startswith(start):
            return start
        await asyncio.sleep(0.01)


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(_CHUNK):
            sink.write(data)
            await sink.drain()


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
