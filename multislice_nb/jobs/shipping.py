"""Ships a growing log file to the store while it is written.

The file goes there in parts of fixed size; part k holds its bytes from k * PART on, and the last one is
rewritten as it grows. Object stores cannot append, and a reader needs nothing but sizes to follow. With each
part goes a list of times, so that lines of different workers can be put in order.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from multislice_nb.jobs.error_lines import TRACEBACK, first_error

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from multislice_nb.jobs.store import Store

__all__ = ["PART", "Shipper", "masked", "ship_rest"]

PART = 4 << 20
"""Bytes of a part."""

_MARKS = 2000


@dataclass
class _Part:
    """What is known of a part: times at which it had grown to a length, as pairs of time and bytes."""

    marks: list[tuple[float, int]] = field(default_factory=list)
    shipped: int = -1

    def mark(self, now: float, length: int) -> None:
        self.marks.append((round(now, 3), length))
        if len(self.marks) > _MARKS:  # half the resolution, and room for as many again
            del self.marks[1:-1:2]


class Shipper:
    """A thread that ships one log file.

    Args:
        path: The file, which may not exist yet.
        store: The store of the run.
        folder: Where its parts go.
        interval: Seconds between two uploads.
        masks: Values that must not be shown; each byte of them is replaced by an asterisk.
    """

    def __init__(
        self, path: Path, store: Store, folder: str, interval: float, masks: Sequence[str] = ()
    ) -> None:
        self._path = path
        self._store = store
        self._folder = folder
        self._interval = interval
        self._masks = masks
        self._parts: dict[int, _Part] = {}
        self._seen = 0
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self.grown = time.monotonic()
        self.first_error: tuple[float, str] | None = None
        self.trouble = ""
        self._thread = threading.Thread(target=self._run, name=f"ship {folder}", daemon=True)
        self._thread.start()

    def close(self, timeout: float) -> bool:
        """Ship what is left and stop; says whether everything arrived in time."""
        self._closing.set()
        self._thread.join(timeout)
        return not self._thread.is_alive() and not self.trouble

    def flush(self) -> bool:
        """Ship what is there now; says whether it arrived."""
        with self._lock:
            self._look()
            return self._ship()

    def look(self) -> None:
        """Note what is there now, without shipping it."""
        with self._lock:
            self._look()

    @property
    def silent(self) -> float:
        """Seconds since the file last grew."""
        return time.monotonic() - self.grown

    def _run(self) -> None:
        tick = min(0.25, self._interval)
        due = 0.0
        while not self._closing.wait(tick):
            if time.monotonic() >= due:
                self.flush()
                due = time.monotonic() + self._interval
            else:
                self.look()
        limit = time.monotonic() + 120.0
        while not self.flush() and time.monotonic() < limit:
            time.sleep(self._interval)

    def _look(self) -> None:
        """Note how far the file has grown, and when."""
        try:
            size = self._path.stat().st_size
        except FileNotFoundError:
            return
        if size <= self._seen:
            return
        now = time.time()
        for number in range(self._seen // PART, (size - 1) // PART + 1):
            self._parts.setdefault(number, _Part()).mark(now, min(size - number * PART, PART))
        if self.first_error is None or self.first_error[1].startswith(TRACEBACK):
            self._search(self._seen, size, now)
        self._seen = size
        self.grown = time.monotonic()

    def _search(self, start: int, end: int, now: float) -> None:
        """Remember the first line that looks like an error, for lack of a better clock with its time."""
        found = first_error(self._read(start, min(end - start, PART)))
        if found:
            self.first_error = (self.first_error[0] if self.first_error else now, found)

    def _ship(self) -> bool:
        """Upload what is new; says whether all is there now."""
        for number, part in sorted(self._parts.items()):
            length = part.marks[-1][1]
            if part.shipped >= length:
                continue
            try:
                self._upload(number, part, length)
            except OSError as error:
                self.trouble = f"the log could not be uploaded: {error}"
                return False
            part.shipped = length
            if length == PART:  # whole: nothing about it changes any more
                part.marks = part.marks[-1:]
        self.trouble = ""
        return True

    def _upload(self, number: int, part: _Part, length: int) -> None:
        _put(self._store, self._folder, number, self._read(number * PART, length), part.marks)

    def _read(self, start: int, length: int) -> bytes:
        return masked(self._path, start, length, self._masks)


def ship_rest(path: Path, store: Store, folder: str, masks: Sequence[str] = ()) -> int:
    """Upload what an earlier shipper of this file, ended with its machine, did not get to.

    Args:
        path: The file, which grows no more.
        store: The store of the run.
        folder: Where its parts are.
        masks: Values that must not be shown.

    Returns:
        How many bytes were missing.

    Raises:
        OSError: The store does not answer.
    """
    about = path.stat()
    there = store.walk(folder)
    missing = 0
    for number in range((about.st_size + PART - 1) // PART):
        name, length = f"{number:06d}", min(about.st_size - number * PART, PART)
        shipped = there.get(f"{name}.log", 0)
        if shipped < length:
            marks = (store.read_json(f"{folder}/{name}.json") or {}).get("marks", [])
            content = masked(path, number * PART, length, masks)
            _put(store, folder, number, content, [*marks, (round(about.st_mtime, 3), length)])
            missing += length - shipped
    return missing


def _put(store: Store, folder: str, number: int, content: bytes, marks: Sequence[tuple[float, int]]) -> None:
    store.write(f"{folder}/{number:06d}.log", content)
    store.write_json(f"{folder}/{number:06d}.json", {"marks": marks})


def masked(path: Path, start: int, length: int, masks: Sequence[str]) -> bytes:
    """Bytes of a file with secrets masked, those that reach over the edges of the part included."""
    hidden = [mask.encode() for mask in masks if mask]
    reach = max(map(len, hidden), default=0)
    before = min(reach, start)
    with path.open("rb") as file:
        file.seek(start - before)
        content = file.read(before + length + reach)
    for mask in hidden:
        content = content.replace(mask, b"*" * len(mask))
    return content[before : before + length]
