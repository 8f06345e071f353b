"""Loopback addresses for the workers: one each where the system allows it, else a port each."""

from __future__ import annotations

import errno
import random
import socket
from collections import deque

# 127.83.0.0/16 without the .0 and .255 of each /24.
_ADDRESSES = 256 * 254
# Below every system's usual ephemeral range, so that no worker's own socket lands on the SSH port.
_PORTS = range(20000, 30000)


def _nth(index: int) -> str:
    return f"127.83.{index // 254}.{1 + index % 254}"


def bindable(address: str, port: int = 0) -> bool:
    """Whether this process may listen there."""
    try:
        listening_socket(address, port).close()
    except OSError:
        return False
    return True


def listening_socket(address: str, port: int) -> socket.socket:
    """A non-blocking listening socket."""
    server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((address, port))
        server.listen(128)
        server.setblocking(False)
    except OSError:
        server.close()
        raise
    return server


def listen_near(address: str, port: int) -> socket.socket:
    """Listen on the wanted port, or on any other where it is taken."""
    try:
        return listening_socket(address, port)
    except OSError as error:
        if error.errno not in {errno.EADDRINUSE, errno.EACCES}:
            raise
        return listening_socket(address, 0)


class AddressPool:
    """Gives each worker a loopback address and takes it back.

    Args:
        seed: Two emulators with different seeds start far apart, so that their workers do not meet.
    """

    def __init__(self, seed: int) -> None:
        self.own_addresses = bindable("127.83.0.1")
        start = (seed * 40503) % _ADDRESSES
        self._fresh = iter(range(_ADDRESSES))
        self._start = start
        self._returned: deque[str] = deque()

    def take(self) -> str:
        """An address that no other worker has.

        Raises:
            OSError: All are taken.
        """
        if not self.own_addresses:
            return "127.0.0.1"
        index = next(self._fresh, None)
        if index is not None:
            return _nth((self._start + index) % _ADDRESSES)
        if self._returned:
            return self._returned.popleft()
        raise OSError(errno.EADDRNOTAVAIL, "all loopback addresses of the emulator are taken")

    def give_back(self, address: str) -> None:
        """Take an address back; it is handed out again as late as possible."""
        if self.own_addresses:
            self._returned.append(address)


def pick_ssh_port() -> int:
    """A port that is free on the first worker address, wanted for all workers; 0 where each needs its own."""
    if not bindable("127.83.0.1"):
        return 0
    for port in random.SystemRandom().sample(_PORTS, 50):
        if bindable("127.0.0.1", port) and bindable("127.83.0.1", port):
            return port
    return 0
