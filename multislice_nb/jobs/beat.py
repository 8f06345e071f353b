"""Signs of life: each worker writes its own, and looks at some of the others'."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from multislice_nb.jobs.layout import beat_key

if TYPE_CHECKING:
    from multislice_nb.jobs.store import Store

__all__ = ["Beat", "Watch"]


class Beat:
    """A thread that writes this worker's sign of life.

    Args:
        store: The store of the run.
        rank: This worker's rank.
        interval: Seconds between two signs.
        facts: What is said in each.
    """

    def __init__(self, store: Store, rank: int, interval: float, **facts: Any) -> None:
        self._store = store
        self._key = beat_key(rank)
        self._interval = interval
        self._facts: dict[str, Any] = {"rank": rank, "seq": 0, **facts}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._ending = False
        self._written = time.monotonic()
        self.trouble = ""
        self._thread = threading.Thread(target=self._run, name="beat", daemon=True)
        self._thread.start()

    def say(self, **facts: Any) -> None:
        """Change what is said, from now on and at once."""
        with self._lock:
            self._facts.update(facts)
        self._wake.set()

    @property
    def unheard(self) -> float:
        """Seconds since a sign of life last reached the store."""
        return time.monotonic() - self._written

    def close(self, **facts: Any) -> None:
        """Say a last word and stop."""
        self.say(**facts)
        self._ending = True
        self._wake.set()
        self._thread.join(30.0)

    def _run(self) -> None:
        while True:
            self._wake.clear()
            last = self._ending
            with self._lock:
                self._facts["seq"] += 1
                document = {**self._facts, "time": time.time()}
            try:
                self._store.write_json(self._key, document)
                self._written = time.monotonic()
                self.trouble = ""
            except OSError as error:
                self.trouble = str(error)
            if last:
                return
            self._wake.wait(self._interval)


@dataclass(slots=True)
class _Seen:
    boot: str
    seq: int
    since: float
    changed: bool = False


class Watch:
    """Looks at other workers' signs of life.

    Only changes count, measured with this machine's own clock: what others' clocks show proves nothing.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen: dict[int, _Seen] = {}

    def look(self, rank: int) -> dict[str, Any]:
        """A worker's last sign of life; empty where there never was one."""
        beat = self._store.read_json(beat_key(rank)) or {}
        boot, seq, now = str(beat.get("boot", "")), int(beat.get("seq", 0)), time.monotonic()
        known = self._seen.get(rank)
        if known is None:
            self._seen[rank] = _Seen(boot, seq, now)
        elif (known.boot, known.seq) != (boot, seq):
            self._seen[rank] = _Seen(boot, seq, now, changed=True)
        return beat

    def silent(self, rank: int) -> float:
        """Seconds since a change was seen, or since the first look where there was none."""
        known = self._seen.get(rank)
        return time.monotonic() - known.since if known else 0.0

    def alive(self, rank: int, within: float) -> bool:
        """Whether it was seen to change lately."""
        known = self._seen.get(rank)
        return known is not None and known.changed and time.monotonic() - known.since < within
