"""Everything that the workers print, on disk, a file for each.

What the disk does not take is lost here, which is told; the cell goes on and its result is whole.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from multislice_nb.cluster.inventory import Worker

__all__ = ["DiskWarning", "Journal"]

LINE = 200
"""Characters of a worker's last line that are kept at hand."""


class DiskWarning(UserWarning):
    """This machine's disk did not take what was to be kept beside a cell, which ran all the same."""


class Journal:
    """A folder with a file per worker, which screens may cut short but this never does.

    Attributes:
        last: By rank, when a worker printed last, in seconds since the epoch, and the end of its last line.
        trouble: What could not be kept of the latest cell, and why; empty where all was.
    """

    def __init__(self, folder: Path, workers: Sequence[Worker]) -> None:
        self.folder = folder
        self._paths = {worker.rank: folder / worker.log_name for worker in workers}
        self._files: dict[int, TextIO] = {}
        self.last: dict[int, tuple[float, str]] = {}
        self.trouble = ""

    def write(self, rank: int, messages: Sequence[Mapping[str, Any]]) -> None:
        """Append what a worker printed, as it came."""
        texts = []
        for message in messages:
            if message["type"] == "stream":
                texts.append(message["text"])
            elif "data" in message:
                texts.append(message["data"].get("text/plain", "") + "\n")
        self._append(rank, texts)
        text = texts[-1] if texts else ""
        if line := text.rstrip()[-4 * LINE :].rpartition("\n")[2].rpartition("\r")[2].strip():
            self.last[rank] = (time.time(), line[-LINE:])

    def mark(self, ranks: Sequence[int], title: str) -> None:
        """Note the start of a cell in the files of the workers that run it."""
        self.trouble = ""
        for rank in ranks:
            self._append(rank, [f"── {title}\n"])

    def path(self, rank: int) -> Path:
        """The file of a worker."""
        return self._paths[rank]

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            self._close(file)
        self._files.clear()

    def _append(self, rank: int, texts: Sequence[str]) -> None:
        try:
            file = self._files.get(rank) or self._open(rank)
            file.writelines(texts)
            file.flush()
        except OSError as error:
            self.trouble = f"Not all that the workers print is kept in {self.folder}: {error}."
            if rank in self._files:  # with what it still holds, which would only fail again
                self._close(self._files.pop(rank))

    def _close(self, file: TextIO) -> None:
        with contextlib.suppress(OSError):  # a full disk has already said so at the write
            file.close()

    def _open(self, rank: int) -> TextIO:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(self._paths[rank], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._files[rank] = os.fdopen(descriptor, "a", encoding="utf-8", errors="replace")
        return self._files[rank]
