"""Our part inside every engine: run a cell or a function and say what became of it.

It is loaded into the engine's IPython as an extension, from the copy of this package that `payload` shipped.
Nothing here raises to the notebook: an error is data, with the time at which it happened on this worker's clock.
"""

from __future__ import annotations

import contextlib
import importlib
import linecache
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from multislice_nb.cluster import record, tracing, unattended
from multislice_nb.cluster.attempt import attempt, interrupts, pack
from multislice_nb.cluster.joining import hold_port, initialize, reach_port
from multislice_nb.cluster.streams import PythonStream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from IPython.core.interactiveshell import InteractiveShell

__all__ = [
    "acknowledge",
    "call",
    "describe",
    "hold_port",
    "initialize",
    "load_ipython_extension",
    "reach_port",
    "run_cell",
]

_NOTHING = contextlib.nullcontext()

_latest: tuple[str, dict[str, Any]] = ("", {})
"""The request that ended last, and its reply, for a notebook that asks again where the disk kept no record of it."""


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Have the shell record what it displays, and behave as fits a worker."""
    for publisher in (shell.display_pub, shell.displayhook):
        if hasattr(publisher, "register_hook"):  # the display hook takes one since ipykernel 7
            publisher.register_hook(_record_display)
    unattended.prepare_shell(shell)
    if record.in_engine():  # tests load this where others go on
        unattended.prepare_process()


def _record_display(message: dict[str, Any]) -> dict[str, Any]:
    """Keep rich output in the cell's record as well, and let it pass."""
    record.write({"type": message["header"]["msg_type"], **message["content"]})
    return message


def run_cell(code: str, name: str, cell_id: str, traced: bool = False) -> dict[str, Any]:
    """Run a notebook cell as IPython would, magics and displayed last expression included.

    Args:
        code: The cell's source.
        name: What tracebacks call the cell, as in `<cell 6>`.
        cell_id: Names its record on this worker, from which a notebook that was away can still read it.
        traced: Whether a trace of jax.profiler is written into that record.

    Returns:
        `ok`, `started` and `finished` (seconds since the epoch on this worker), `value` (see `_pack`) and,
        where it failed, `error`.
    """
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    # What is put into it is done outside the body: an interrupt does not reach it, and it is done for failed cells too.
    afterwards = contextlib.ExitStack()

    def body() -> Any:
        PythonStream.catch_up()
        if traced:
            tracing.start(record.folder_of(cell_id) / tracing.FOLDER)
            afterwards.callback(tracing.stop)
        with _quiet_tracebacks(shell), _known_as(shell, name, code):
            outcome = shell.run_cell(code, store_history=False)
        error = outcome.error_before_exec or outcome.error_in_exec
        if error is not None:
            unattended.explain(error)
            raise error
        if traced:
            tracing.settle()
        return outcome.result

    return _recorded(body, name, cell_id, "cells", afterwards)


def acknowledge(cell_id: str) -> None:
    """The notebook has this cell's reply: it need not be offered again."""
    record.acknowledge(cell_id)


def call(target: str, args: tuple[Any, ...], kwargs: dict[str, Any], call_id: str) -> dict[str, Any]:
    """Run an importable function, named as `package.module:function`, and send back what it returns."""

    def body() -> Any:
        module, _, function = target.partition(":")
        return getattr(importlib.import_module(module), function)(*args, **kwargs)

    return _recorded(body, target, call_id, "calls")


def describe() -> dict[str, Any]:
    """This worker's rank, process and versions, without touching JAX's backend."""
    import IPython

    return {
        "rank": int(os.environ["MULTISLICE_NB_RANK"]),
        "gang": os.environ["MULTISLICE_NB_GANG"],
        "pid": os.getpid(),
        "python": ".".join(map(str, sys.version_info[:3])),
        "ipython": IPython.__version__,
    }


@contextlib.contextmanager
def _quiet_tracebacks(shell: Any) -> Iterator[None]:
    """Keep IPython from publishing a traceback as output: it travels in the reply, once."""

    def nothing(*_args: Any, **_kwargs: Any) -> None:
        return None

    names = ("showtraceback", "showsyntaxerror", "showindentationerror")
    for name in names:
        setattr(shell, name, nothing)
    try:
        yield
    finally:
        for name in names:
            delattr(shell, name)


@contextlib.contextmanager
def _known_as(shell: Any, name: str, code: str) -> Iterator[None]:
    """Have the cell compiled under the name that the user knows it by, and know its code without a history."""
    shell.compile.get_code_name = lambda *_: name
    shell.displayhook.quiet = lambda: unattended.ends_in_semicolon(code)
    try:
        yield
    finally:
        del shell.compile.get_code_name, shell.displayhook.quiet


def _recorded(
    body: Callable[[], Any],
    name: str,
    request: str,
    shelf: str,
    afterwards: contextlib.AbstractContextManager[Any] = _NOTHING,
) -> dict[str, Any]:
    """Run `body` once, whatever the number of times that it is asked for, and keep what comes of it on disk."""
    global _latest  # noqa: PLW0603 - an engine runs one request at a time
    with interrupts.deferred():
        if not record.begin(request, name, shelf):
            now = time.time()
            if request == _latest[0]:
                return _latest[1]
            return {"ok": True, "value": pack(None), "started": now, "finished": now}
        with afterwards:
            reply = attempt(body, name)
        record.end(request, reply, shelf)
        _latest = (request, reply)
    return reply
