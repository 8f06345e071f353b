"""What a cell prints and leaves, on the worker's own disk, for a notebook that comes back.

Runs in the engine. A cell has a folder `cells/ID` in the cluster's folder: `cell.json` says what it is,
`output.jsonl` grows a message a line as it prints, `reply.pickle` appears when it has ended, and `seen` when a
notebook has got it. A call of a function has one in `calls`, for a notebook whose connection breaks while it
runs. Only the last few are kept.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import threading
import time
from pathlib import Path
from typing import Any, TextIO

__all__ = ["KEPT", "acknowledge", "begin", "end", "folder_of", "in_engine", "write"]

KEPT = 5
"""Cells whose record is kept on a worker."""

# Of the same thread, as what is printed by a `__del__` that the garbage collector calls in the middle of a write.
_lock = threading.RLock()
_open: TextIO | None = None


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
    global _open  # noqa: PLW0603 - an engine runs one cell at a time
    root = _folder(shelf)
    if root is None:
        return True
    folder = root / cell_id
    if folder.exists():
        return False
    folder.mkdir(parents=True, mode=0o700)
    for old in sorted(root.iterdir(), key=lambda path: path.stat().st_mtime)[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    (folder / "cell.json").write_text(json.dumps({"id": cell_id, "name": name, "started": time.time()}))
    with _lock:
        _open = (folder / "output.jsonl").open("w", encoding="utf-8")
    return True


def write(message: dict[str, Any]) -> bool:
    """Add a message of output, as a notebook would receive it.

    Returns:
        Whether something runs whose output it is.
    """
    line = json.dumps(message, default=str) + "\n"  # may run code of the user's that prints, too
    with _lock:
        if _open is not None:
            _open.write(line)
            _open.flush()
        return _open is not None


def end(cell_id: str, reply: dict[str, Any], shelf: str = "cells") -> None:
    """Store how the cell ended; the file appears whole or not at all."""
    global _open  # noqa: PLW0603 - as above
    with _lock:
        if _open is not None:
            _open.close()
            _open = None
    root = _folder(shelf)
    if root is not None and (root / cell_id).exists():
        partial = root / cell_id / "reply.partial"
        partial.write_bytes(pickle.dumps(reply, protocol=5))
        partial.rename(root / cell_id / "reply.pickle")


def acknowledge(cell_id: str) -> None:
    """A notebook has the cell's reply."""
    root = _folder("cells")
    if root is not None and (root / cell_id).exists():
        (root / cell_id / "seen").touch()
