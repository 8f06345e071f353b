"""A port for a coordinator."""

from __future__ import annotations

import socket

__all__ = ["free_port"]


def free_port(address: str, first: int) -> int:
    """A port at an address of this machine that nobody holds, from `first` upwards.

    A coordinator whose port is taken dies by a segmentation fault, so it is tried here before.

    Raises:
        OSError: A hundred of them are taken.
    """
    for port in range(first, first + 100):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError as error:
                taken = error
            else:
                return port
    raise taken
