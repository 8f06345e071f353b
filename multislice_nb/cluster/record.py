"""What a cell prints and leaves, on the worker's own disk, for a notebook that comes back.

Runs in the engine. A cell has a folder `cells/ID` in the cluster's folder: `cell.json` says what it is,
`output.jsonl` grows a message a line as it prints, `reply.pickle` appears when it has ended, and `seen` when a
notebook has got it. A call of a function has one in `calls`, for a notebook whose connection breaks while it
runs. Only the last few are kept.

A disk that is full fails no cell: it costs the record, which a notebook that stays attached does without.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import pickle
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from io import FileIO

__all__ = ["KEPT", "acknowledge", "begin", "end", "folder_of", "in_engine", "write"]

KEPT = 5
"""Cells whose record is kept on a worker."""

RESERVED = 96 << 10
"""Bytes set aside for the reply as the cell begins, so that how it ended is kept though the disk fills meanwhile."""

# Of the same thread, as what is printed by a `__del__` that the garbage collector calls in the middle of a write.
_lock = threading.RLock()
_open: FileIO | None = None
_running = False
_trouble = ""
_begun: collections.deque[str] = collections.deque(maxlen=KEPT)
"""Requests that came, for one whose record could not be made."""


def _let_children_write() -> None:
    """A child that a cell forks while another thread prints would wait for a lock that nobody gives back."""
    global _lock  # noqa: PLW0603 - the parent has its own
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_let_children_write)


def _folder(shelf: str) -> Path | None:
    """Where this engine keeps its records; None outside an engine."""
    root = os.environ.get("MULTISLICE_NB_FOLDER")
    return Path(root) / shelf if root else None


def in_engine() -> bool:
    """Whether this process is an engine."""
    return _folder("cells") is not None


def folder_of(cell_id: str) -> Path:
    """The folder of a cell's record.

    Raises:
        RuntimeError: This is no engine.
    """
    root = _folder("cells")
    if root is None:
        raise RuntimeError("a cell has a record in an engine only")
    return root / cell_id


def begin(cell_id: str, name: str, shelf: str = "cells") -> bool:
    """Start the record of a cell.

    Returns:
        Whether it is new. A request that a notebook sent again, not knowing that it had arrived, is not.
    """
    global _open, _running, _trouble
    root = _folder(shelf)
    if root is None:
        return True
    folder = root / cell_id
    if cell_id in _begun or folder.exists():
        return False
    _begun.append(cell_id)
    opened, trouble = None, ""
    try:
        folder.mkdir(parents=True, mode=0o700)
        for old in sorted(root.iterdir(), key=lambda path: path.stat().st_mtime)[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)
        (folder / "reply.partial").write_bytes(bytes(RESERVED))
        (folder / "cell.json").write_text(json.dumps({"id": cell_id, "name": name, "started": time.time()}))
        # Without a buffer, which would keep what a full disk did not take.
        opened = (folder / "output.jsonl").open("wb", buffering=0)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        trouble = str(error)
    with _lock:
        _open, _running, _trouble = opened, True, trouble
    return True


def write(message: dict[str, Any]) -> bool:
    """Add a message of output, as a notebook would receive it.

    Returns:
        Whether something runs whose output it is.
    """
    line = json.dumps(message, default=str) + "\n"  # may run code of the user's that prints, too
    with _lock:
        if _open is not None:
            _append(_open, line.encode())
        return _running


def _append(file: FileIO, line: bytes) -> None:
    """Add a line, or nothing of it and no other after it: a reader counts on the record having no gaps."""
    global _open, _trouble
    whole = file.tell()
    try:
        while line:
            line = line[file.write(line) :]
    except OSError as error:
        _open, _trouble = None, str(error)
        with contextlib.suppress(OSError):  # of the failed write
            file.truncate(whole)
            file.close()


def end(cell_id: str, reply: dict[str, Any], shelf: str = "cells") -> None:
    """Store how the cell ended; the file appears whole or not at all."""
    global _open, _running, _trouble  # noqa: PLW0603 - an engine runs one cell at a time
    root = _folder(shelf)
    kept = root is not None and (root / cell_id).exists()
    if root is not None and kept:
        try:
            _store(root / cell_id / "reply.partial", reply)
        except OSError as error:
            _trouble = str(error)
    if _trouble:
        _tell()
    with _lock:
        file, _open, _running, _trouble = _open, None, False, ""
    with contextlib.suppress(OSError):  # the disk has said so at a write
        if file is not None:
            file.close()
        if root is not None and kept:  # last: once it is there, the output is complete
            (root / cell_id / "reply.partial").rename(root / cell_id / "reply.pickle")


def _store(path: Path, reply: dict[str, Any]) -> None:
    """Write a reply over what was reserved for it, without its value where the disk has no room for that.

    Raises:
        OSError: It had not; the rest is there.
    """
    with path.open("r+b", buffering=0) as file:
        try:
            data = pickle.dumps(reply, protocol=5)
            while data:
                data = data[file.write(data) :]
            file.truncate()
        except OSError as error:
            value = {"text": "<value>", "why": f"it could not be kept on its worker: {error}"}
            file.seek(0)
            file.write(pickle.dumps(reply | {"value": value} if reply["ok"] else reply, protocol=5))
            raise


def _tell() -> None:
    """Say on the cell's standard error that its record is not whole."""
    # Whatever a cell may have put in its place may fail in any way.
    with contextlib.suppress(Exception):
        print(
            f"Not all of this is kept on the worker's disk: {_trouble}. A notebook that attaches later gets no more "
            "than is there.",
            file=sys.stderr,
            flush=True,
        )


def acknowledge(cell_id: str) -> None:
    """A notebook has the cell's reply."""
    root = _folder("cells")
    if root is not None and (root / cell_id).exists():
        with contextlib.suppress(OSError):  # on a full disk it is offered once more
            (root / cell_id / "seen").touch()
