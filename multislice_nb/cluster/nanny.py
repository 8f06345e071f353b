"""An engine and its nanny: the process above the engine, which relays signals and tells how it ended.

ipyparallel starts a new Python beside every engine for this. Here it is the process that the engine was forked
from, after the imports that both need: that spares a worker a process and a start of Python, and the nanny, being
the parent, sees the exit status. Runs on the worker.
"""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING, Any

from ipyparallel.engine.app import IPEngine
from ipyparallel.engine.nanny import KernelNanny
from traitlets.config import Config

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

__all__ = ["Engine", "watch"]


class Engine(IPEngine):  # type: ignore[misc]  # ipyparallel ships no types
    """An engine whose nanny is there already, at the other end of `nanny_line`."""

    nanny_line: Connection

    def start_nanny(self, control_url: str) -> tuple[str, Connection]:
        """Tell the nanny what it has to know, and get the address at which it relays."""
        self.nanny_line.send(
            {
                "pid": os.getpid(),
                "engine_id": self.id,
                "identity": self.bident,
                "control_url": control_url,
                "registration_url": self.registration_url,
                "curve_serverkey": self.curve_serverkey,
                "curve_secretkey": self.curve_secretkey,
                "curve_publickey": self.curve_publickey,
                "config": Config({"Session": self.config.Session}),
            }
        )
        return self.nanny_line.recv(), self.nanny_line


class _Nanny(KernelNanny):  # type: ignore[misc]  # ipyparallel ships no types
    """ipyparallel's nanny, as the parent of its engine."""

    def __init__(self, ended: threading.Event, **options: Any) -> None:
        super().__init__(log_level=logging.ERROR, **options)
        self._ended = ended

    def wait_for_parent_thread(self) -> None:
        """Wait for the engine's end; it is the nanny's parent where ipyparallel starts it."""
        self._ended.wait()
        self.loop.add_callback(self.finish)

    def pipe_handler(self, fd: Any, _events: int) -> None:
        """Nothing: whoever waits for the engine's end sees it."""
        self.loop.remove_handler(fd)


class _Answer:
    """What a nanny takes for its standard output: the line on which the engine waits for an address."""

    def __init__(self, line: Connection) -> None:
        self._line = line
        self.fileno = line.fileno
        self.close = line.close

    def write(self, text: str) -> None:
        self._line.send(text.strip())


def watch(line: Connection, see_end: Callable[[], None]) -> None:
    """Be the nanny of a forked engine until it has ended.

    Args:
        line: Where the engine says what the nanny has to know; it is closed if the engine ends before.
        see_end: Returns once the engine has ended, and has noted how.
    """
    ended = threading.Event()

    def wait() -> None:
        try:
            see_end()
        finally:
            ended.set()

    threading.Thread(target=wait, name="see_end").start()
    try:
        options = line.recv()
    except EOFError:
        return  # it was never registered, so there is nobody to tell
    _Nanny.main(ended=ended, pipe=_Answer(line), **options)
