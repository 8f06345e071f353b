"""Reading logs of many workers back: one line after another, in order of time, also while they are written."""

from __future__ import annotations

import heapq
import json
import re
import time
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

from multislice_nb.jobs.shipping import PART
from multislice_nb.jobs.worker import place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from multislice_nb.jobs.record import JobSpec
    from multislice_nb.jobs.store import Store

__all__ = ["LogLine", "read_logs", "search_logs"]


@dataclass(frozen=True, slots=True, order=True)
class LogLine:
    """A line of a worker's log.

    Attributes:
        time: When it was there, in seconds since the epoch, on that worker's clock; a quarter of a second
            exact in a log that grows slowly.
        attempt: Of which attempt.
        rank: Of which worker.
        text: Without its end of line.
    """

    time: float
    attempt: int
    rank: int
    text: str

    def __str__(self) -> str:
        return f"[{self.attempt}:{self.rank}] {self.text}"


class _Follower:
    """One worker's log of one attempt, read from where it was left."""

    def __init__(self, store: Store, rank: int, attempt: int, folder: str) -> None:
        self._store = store
        self._folder = folder
        self._rank = rank
        self._attempt = attempt
        self._at = 0
        self._rest = b""

    def lines(self, *, last: bool) -> Iterator[LogLine]:
        """Lines that are new; with `last`, also one whose end has not come."""
        while True:
            number, offset = divmod(self._at, PART)
            content = self._store.read(f"{self._folder}/{number:06d}.log", start=offset)
            if not content:
                break
            times = self._times(number)
            yield from self._split(content, times, offset)
            self._at += len(content)
            if self._at % PART:  # not whole yet: what is missing is not written
                break
        if last and self._rest:
            yield self._line(self._rest, self._times(max(0, self._at - 1) // PART), (self._at - 1) % PART + 1)
            self._rest = b""

    def _times(self, number: int) -> list[tuple[float, int]]:
        content = self._store.read(f"{self._folder}/{number:06d}.json")
        return (
            [(float(when), int(length)) for when, length in json.loads(content)["marks"]] if content else []
        )

    def _split(self, content: bytes, times: list[tuple[float, int]], offset: int) -> Iterator[LogLine]:
        pieces = content.split(b"\n")
        for piece in pieces[:-1]:
            offset += len(piece) + 1
            yield self._line(self._rest + piece, times, offset)
            self._rest = b""
        self._rest += pieces[-1]

    def _line(self, text: bytes, times: list[tuple[float, int]], end: int) -> LogLine:
        place = bisect_left(times, end, key=lambda mark: mark[1])
        when = times[min(place, len(times) - 1)][0] if times else 0.0
        return LogLine(when, self._attempt, self._rank, text.decode(errors="replace").removesuffix("\r"))


def read_logs(
    store: Store,
    job: JobSpec,
    *,
    ranks: Iterable[int] | None = None,
    attempt: int | None = None,
    follow: bool = False,
    ended: Callable[[], bool] = lambda: True,
    pause: float = 1.0,
    supervisor: bool = False,
) -> Iterator[LogLine]:
    """Lines of the logs of a run.

    Args:
        store: The store of the run.
        job: The job.
        ranks: Of these workers; all when None.
        attempt: Of this attempt; all when None.
        follow: Go on with what comes until the run has ended.
        ended: Whether it has.
        pause: Seconds between two looks.
        supervisor: What the supervisors logged, of all boots, instead of the command; its attempt is 0.
    """
    wanted = sorted(set(ranks)) if ranks is not None else list(range(job.workers))
    followers: dict[tuple[int, str], _Follower] = {}
    while True:
        last = not follow or ended()
        for rank in wanted:
            for name in _folders(store, rank, attempt, supervisor=supervisor):
                number = int(name) if name.isdigit() else 0
                follower = _Follower(store, rank, number, f"logs/{rank:05d}/{name}")
                followers.setdefault((rank, name), follower)
        batches = [reader.lines(last=last) for _, reader in sorted(followers.items())]
        yield from heapq.merge(*batches)
        if last:
            return
        time.sleep(pause)


def _folders(store: Store, rank: int, attempt: int | None, *, supervisor: bool) -> list[str]:
    if attempt is not None and not supervisor:
        return [f"{attempt:04d}"]
    return [name for name in store.list(f"logs/{rank:05d}") if name.startswith("boot-") == supervisor]


def search_logs(
    store: Store,
    job: JobSpec,
    pattern: str,
    *,
    ranks: Iterable[int] | None = None,
    attempt: int | None = None,
) -> list[LogLine]:
    """Lines that match a regular expression, the first in time first.

    Args:
        store: The store of the run.
        job: The job.
        pattern: The expression.
        ranks: In the logs of these workers; all when None.
        attempt: In those of this attempt; all when None.
    """
    expression = re.compile(pattern)
    return [
        line for line in read_logs(store, job, ranks=ranks, attempt=attempt) if expression.search(line.text)
    ]


def where(job: JobSpec, line: LogLine) -> str:
    """The worker that a line is from, in words."""
    return place(job, line.rank)
