"""Gangs on the emulator for the tests of a module, and what tests of cells do to them."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING

import multislice_nb as ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from multislice_nb.cluster import Cluster
    from multislice_nb.cluster.progress import CellProgress

__all__ = ["attached", "interrupt_once_printed"]


@contextlib.contextmanager
def attached(name: str, accelerator_type: str) -> Iterator[Cluster]:
    """Two slices, attached; shut down and deleted at the end."""
    queued_resource = ms.connect().create(name, accelerator_type=accelerator_type, node_count=2)
    try:
        queued_resource.wait(timeout=60)
        cluster = ms.attach(queued_resource)
        yield cluster
        cluster.shutdown()
    finally:
        queued_resource.delete(force=True)


def interrupt_once_printed(text: str) -> Callable[[CellProgress], None]:
    """Send this process a Ctrl-C as soon as the cell has printed `text`."""

    def look(progress: CellProgress) -> None:
        if text in str(progress):
            os.kill(os.getpid(), signal.SIGINT)

    return look
