"""Our part inside every engine: run a cell or a function and say what became of it.

It is loaded into the engine's IPython as an extension, from the copy of this package that `payload` shipped.
The notebook calls it by reference, so no byte code crosses the wire and the two Pythons may differ. Nothing
here raises to the notebook: an error is data, with the time at which it happened on this worker's clock.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import linecache
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any

from multislice_nb import _ports
from multislice_nb.cluster import record, tracing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["acknowledge", "call", "describe", "free_port", "initialize", "load_ipython_extension", "run_cell"]

NAME = "__multislice__"
"""The name under which an engine's namespace holds this module."""

LARGEST_VALUE = 4 << 20
"""Bytes of a pickled value beyond which only its text is sent back."""

_ignored_frames = (__file__,)


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Make this module reachable by reference, without showing it in `%who`."""
    module = sys.modules[__name__]
    shell.user_ns[NAME] = module
    shell.user_ns_hidden[NAME] = module
    for publisher in (shell.display_pub, shell.displayhook):
        if hasattr(publisher, "register_hook"):  # the display hook takes one since ipykernel 7
            publisher.register_hook(_record_display)


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
        if traced:
            tracing.start(record.folder_of(cell_id) / tracing.FOLDER)
            afterwards.callback(tracing.stop)
        shell.user_ns[NAME] = sys.modules[__name__]
        with _quiet_tracebacks(shell), _cell_name(shell, name):
            outcome = shell.run_cell(code, store_history=False)
        error = outcome.error_before_exec or outcome.error_in_exec
        if error is not None:
            raise error
        if traced:
            tracing.settle()
        return outcome.result

    with _interrupts.deferred():
        record.begin(cell_id, name)
        with afterwards:
            reply = _attempt(body, name)
        record.end(cell_id, reply)
    return reply


def acknowledge(cell_id: str) -> None:
    """The notebook has this cell's reply: it need not be offered again."""
    record.acknowledge(cell_id)


def call(target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Run an importable function, named as `package.module:function`, and send back what it returns."""

    def body() -> Any:
        module, _, function = target.partition(":")
        return getattr(importlib.import_module(module), function)(*args, **kwargs)

    return _attempt(body, target)


def free_port(address: str, first: int) -> dict[str, Any]:
    """A port at this worker's address that nobody holds, from `first` upwards."""
    return _attempt(lambda: _ports.free_port(address, first), "free_port")


def initialize(
    coordinator_address: str, num_processes: int, process_id: int, timeout: int, heartbeat: int
) -> dict[str, Any]:
    """Join the gang's jax.distributed, with everything said explicitly.

    Nothing is left to detection, which fails on some queued resources, nor to a default port, which moved
    between JAX releases and is closed by older firewall rules.
    """

    def body() -> dict[str, Any]:
        import jax

        jax.distributed.initialize(
            coordinator_address=coordinator_address,
            num_processes=num_processes,
            process_id=process_id,
            cluster_detection_method="deactivate",
            initialization_timeout=timeout,
            heartbeat_timeout_seconds=heartbeat,
            coordinator_bind_address=coordinator_address if process_id == 0 else None,
        )
        return _devices()

    return _attempt(body, "jax.distributed.initialize")


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


def _devices() -> dict[str, Any]:
    import jax

    local = jax.local_devices()
    return {
        "jax": jax.__version__,
        "backend": jax.default_backend(),
        "device_kind": local[0].device_kind,
        "device_count": jax.device_count(),
        "local_device_count": len(local),
        "process_index": jax.process_index(),
        "slice_index": getattr(local[0], "slice_index", 0),
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
def _cell_name(shell: Any, name: str) -> Iterator[None]:
    """Have the cell compiled under the name that the user knows it by."""
    shell.compile.get_code_name = lambda *_: name
    try:
        yield
    finally:
        del shell.compile.get_code_name


def _attempt(body: Callable[[], Any], name: str) -> dict[str, Any]:
    """Run `body` interruptibly and turn its end, whatever it is, into a reply."""
    started = time.time()
    reply: dict[str, Any]
    try:
        with _interrupts.accepted():
            value = body()
        reply = {"ok": True, "value": _pack(value)}
    except BaseException as error:  # noqa: BLE001 - SystemExit and KeyboardInterrupt are outcomes of a cell too
        reply = {"ok": False, "error": _describe_error(error, name)}
    sys.stdout.flush()
    sys.stderr.flush()
    return reply | {"started": started, "finished": time.time()}


class _Interrupts:
    """SIGINT for the cell alone: between cells the engine ignores it, and our own bookkeeping puts it off."""

    def __init__(self) -> None:
        self._pending = False

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Remember an interrupt instead of raising it."""
        with _handling(self._remember):
            yield
        self._pending = False

    @contextlib.contextmanager
    def accepted(self) -> Iterator[None]:
        """Raise an interrupt as KeyboardInterrupt, one that was remembered too."""
        with _handling(signal.default_int_handler):
            if self._pending:
                raise KeyboardInterrupt
            yield

    def _remember(self, _number: int, _frame: FrameType | None) -> None:
        self._pending = True


_interrupts = _Interrupts()


@contextlib.contextmanager
def _handling(handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    """Have SIGINT handled so; only the main thread can say it, and only the main thread gets it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


class _Pickler(pickle.Pickler):
    """Sends JAX arrays as numpy arrays, so that the notebook needs no backend to read them."""

    def reducer_override(self, obj: object) -> Any:
        jax = sys.modules.get("jax")
        if jax is not None and isinstance(obj, jax.Array):
            import numpy as np

            return np.asarray(obj).__reduce__()
        return NotImplemented


def _pack(value: object) -> dict[str, Any]:
    """A value as `pickle` bytes where it can travel, else as the `text` of its repr, cut at 10 000 characters."""
    try:
        buffer = io.BytesIO()
        _Pickler(buffer, protocol=5).dump(value)
    except Exception as error:  # noqa: BLE001 - any object may refuse to be pickled, in any way
        return {"text": _text(value), "why": f"it cannot be pickled: {error}"[:500]}
    if buffer.tell() > LARGEST_VALUE:
        return {"text": _text(value), "why": f"it is {buffer.tell():,} bytes pickled"}
    return {"pickle": buffer.getvalue()}


def _text(value: object) -> str:
    try:
        return repr(value)[:10_000]
    except Exception as error:  # noqa: BLE001 - a broken __repr__ must not fail the cell
        return f"<{type(value).__name__}: repr failed: {error}>"


def _describe_error(error: BaseException, name: str) -> dict[str, Any]:
    """An exception as data: class, message, the user's frames, and the last line in the cell."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename not in _ignored_frames]
    first = next((i for i, f in enumerate(frames) if f.filename == name), 0)
    # Code that did not compile has no frame of its own, and IPython's would say nothing.
    frames = [] if isinstance(error, SyntaxError) and first == 0 else frames[first:]
    lines = [f for f in frames if f.filename == name]
    line = (lines[-1].lineno, lines[-1].line) if lines else (None, None)
    if isinstance(error, SyntaxError) and error.filename == name:
        line = (error.lineno, (error.text or "").strip())
    report = traceback.TracebackException.from_exception(error)
    report.stack = traceback.StackSummary.from_list(frames)
    return {
        "ename": type(error).__name__,
        "evalue": _message(error),
        "line_number": line[0],
        "line": line[1],
        "function": frames[-1].name if frames else None,
        "traceback": "".join(report.format()),
    }


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as second:  # noqa: BLE001 - a broken __str__ must not hide the error
        return f"<{type(error).__name__}: str failed: {second}>"
