"""An SSH server for one emulated worker: key authentication, commands, terminals, SFTP, scp and forwards.

A listening socket is all that an idle worker costs; asyncssh comes in with the first connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from multislice_nb.emulator import network

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable

    import asyncssh

    from multislice_nb.emulator.vm import Vm

log = logging.getLogger(__name__)

# As OpenSSH's MaxStartups: strangers that never log in cannot pile up.
_MAX_UNAUTHENTICATED = 100


class SshListener:
    """Listens on a worker's address while its VM is up."""

    def __init__(self, vm: Vm) -> None:
        self._vm = vm
        self._sockets: list[socket.socket] = []
        self._handshakes: set[asyncio.Task[None]] = set()
        self._connections: set[asyncssh.SSHServerConnection] = set()
        self._options: asyncssh.SSHServerConnectionOptions | None = None

    @property
    def sessions(self) -> int:
        """How many clients are logged in."""
        return len(self._connections)

    def open(self, address: str, port: int, extra_ports: Iterable[int] = ()) -> int:
        """Start listening, and return the port."""
        if not self._sockets:
            self._listen(network.listen_near(address, port))
            for extra in extra_ports:
                with contextlib.suppress(OSError):  # the published port is the one that counts
                    self._listen(network.listening_socket(address, extra))
        return int(self._sockets[0].getsockname()[1])

    def _listen(self, server: socket.socket) -> None:
        self._sockets.append(server)
        asyncio.get_running_loop().add_reader(server, self._accept, server)

    def _accept(self, server: socket.socket) -> None:
        try:
            client, _ = server.accept()
        except OSError:  # the client left before we came, or no descriptor is free
            return
        if len(self._handshakes) >= _MAX_UNAUTHENTICATED:
            client.close()
            return
        client.setblocking(False)
        task = asyncio.get_running_loop().create_task(self._serve(client))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _serve(self, client: socket.socket) -> None:
        import asyncssh

        from multislice_nb.emulator.ssh_session import server_options

        if self._vm.faults.hung:
            await self._stay_silent(client)
            return
        if self._options is None:
            self._options = server_options(self._vm)
        try:
            connection = await asyncssh.run_server(client, options=self._options)
        except (OSError, asyncssh.Error, TimeoutError) as error:
            log.debug("no login to %s: %s", self._vm.mark, type(error).__name__)
            client.close()
            return
        except asyncio.CancelledError:
            client.close()
            raise
        self._connections.add(connection)
        closing = asyncio.get_running_loop().create_task(self._forget_when_closed(connection))
        self._vm.keep_task(closing)

    async def _forget_when_closed(self, connection: asyncssh.SSHServerConnection) -> None:
        try:
            await connection.wait_closed()
        finally:
            self._connections.discard(connection)

    async def _stay_silent(self, client: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._vm.faults.hung and await loop.sock_recv(client, 65536):
                pass
        except OSError:
            pass
        finally:
            client.close()

    def forget_host_key(self) -> None:
        """Take up the VM's present host key with the next connection."""
        self._options = None

    def close(self) -> None:
        """Stop listening and drop everybody, as a VM does that loses its power."""
        loop = asyncio.get_running_loop()
        for server in self._sockets:
            loop.remove_reader(server)
            server.close()
        self._sockets.clear()
        for task in list(self._handshakes):
            task.cancel()
        for connection in list(self._connections):
            connection.abort()
