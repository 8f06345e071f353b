"""Something run in an engine, its end turned into data, whatever that end is."""

from __future__ import annotations

import contextlib
import io
import pickle
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multislice_nb._texts import grouped
from multislice_nb.cluster.streams import flush

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

__all__ = ["Pickler", "attempt", "interrupts", "pack"]

LONGEST_TEXT = 10_000
"""Characters of a text that stands for a value, and of a message and of a traceback."""

LARGEST_VALUE = 4 << 20
"""Bytes of a pickled value beyond which only its text is sent back."""

_OURS = ("agent.py", "attempt.py", "awaiting.py", "joining.py", "unattended.py")
_IGNORED_FRAMES = {str(Path(__file__).with_name(name)) for name in _OURS}


def attempt(body: Callable[[], Any], name: str) -> dict[str, Any]:
    """Run `body` interruptibly and turn its end, whatever it is, into a reply."""
    started = time.time()
    reply: dict[str, Any]
    try:
        with interrupts.accepted():
            reply = {"ok": True, "value": pack(body())}
    except BaseException as error:  # noqa: BLE001 - SystemExit and KeyboardInterrupt are outcomes of a cell too
        reply = {"ok": False, "error": _describe_error(error, name)}
    flush()
    return reply | {"started": started, "finished": time.time()}


class Interrupts:
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


interrupts = Interrupts()


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


class _TooLargeError(Exception):
    """A value has more bytes than are sent back; it is noticed before they are all there."""


class _Buffer(io.BytesIO):
    """Takes as many bytes as are sent back, and no more."""

    def write(self, data: Any) -> int:
        if self.tell() + memoryview(data).nbytes > LARGEST_VALUE:
            raise _TooLargeError
        return super().write(data)


class Pickler(pickle.Pickler):
    """Sends JAX arrays as numpy arrays, so that who reads them needs no backend, nor the same devices."""

    def reducer_override(self, obj: object) -> Any:
        """What pickle asks first of each object: how to take it apart."""
        jax = sys.modules.get("jax")
        if jax is not None and isinstance(obj, jax.Array):
            import numpy as np

            return np.asarray(obj).__reduce__()
        return NotImplemented


class _Sender(Pickler):
    """Leaves on its devices what is too large to be sent back."""

    def reducer_override(self, obj: object) -> Any:
        jax = sys.modules.get("jax")
        if jax is not None and isinstance(obj, jax.Array) and obj.nbytes > LARGEST_VALUE:
            raise _TooLargeError
        return super().reducer_override(obj)


def pack(value: object) -> dict[str, Any]:
    """A value as `pickle` bytes where it can travel, else as the `text` of its repr."""
    try:
        buffer = _Buffer()
        _Sender(buffer, protocol=5).dump(value)
    except _TooLargeError:
        return {"text": _text(value), "why": f"it is more than {grouped(LARGEST_VALUE)} bytes pickled"}
    except Exception as error:  # noqa: BLE001 - any object may refuse to be pickled, in any way
        return {"text": _text(value), "why": f"it cannot be pickled: {error}"[:500]}
    return {"pickle": buffer.getvalue()}


def _text(value: object) -> str:
    try:
        return repr(value)[:LONGEST_TEXT]
    except Exception as error:  # noqa: BLE001 - a broken __repr__ must not fail the cell
        return f"<{type(value).__name__}: repr failed: {error}>"


def _describe_error(error: BaseException, name: str) -> dict[str, Any]:
    """An exception as data: class, message, the user's frames, and the last line in the cell."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename not in _IGNORED_FRAMES]
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
        "traceback": _cut("".join(report.format())),
    }


def _cut(text: str) -> str:
    """A text with its middle left out where it is too long: both ends say what happened."""
    over = len(text) - LONGEST_TEXT
    if over <= 0:
        return text
    half = LONGEST_TEXT // 2
    return f"{text[:half]}\n… {grouped(over)} characters left out …\n{text[-half:]}"


def _message(error: BaseException) -> str:
    try:
        return _cut(str(error))
    except Exception as second:  # noqa: BLE001 - a broken __str__ must not hide the error
        return f"<{type(error).__name__}: str failed: {second}>"
