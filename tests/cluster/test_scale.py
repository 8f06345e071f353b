"""Sizes that no test can start: what is refused, and what stays small."""

from __future__ import annotations

import subprocess
import sys

from multislice_nb.cluster.fold import interleave
from multislice_nb.cluster.gang import Record
from multislice_nb.cluster.inventory import Worker
from multislice_nb.cluster.progress import CellProgress
from multislice_nb.cluster.result import CellResult, WorkerResult
from multislice_nb.cluster.scale import heartbeat_milliseconds

MANY = 1024

LIMITED = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 400))
from multislice_nb import errors
from multislice_nb.cluster.scale import require_descriptors
require_descriptors(64)
print(resource.getrlimit(resource.RLIMIT_NOFILE))
try: require_descriptors(64, proxied=True)
except errors.ConnectError as error: print(error)
"""


def test_open_files_are_counted_before_the_first_connection() -> None:
    """The limit is raised where the system lets it; a size that would run out of files is refused with the numbers."""
    done = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, check=True)
    limits, told, fix = done.stdout.splitlines()
    assert limits == "(328, 400)"
    assert told == "64 workers need 520 open files in this process, and the system allows 400."
    assert "ulimit -Hn 520" in fix


def test_heartbeats_do_not_grow_with_the_gang() -> None:
    """However many engines there are, the controller hears at most 250 beats a second, and few are heard soon."""
    for workers in (1, 16, 250, MANY):
        assert workers * 1000 / heartbeat_milliseconds(workers) <= 250
    assert heartbeat_milliseconds(16) <= 500


def test_the_screen_stays_small() -> None:
    """1024 workers that print lines of their own update a screen of some hundred lines, and lose none."""
    records = {rank: Record(rank) for rank in range(MANY)}
    for rank, record in records.items():
        record.stdout.write("".join(f"rank {rank} step {step}\n" for step in range(100)))
    shown = str(CellProgress.of(records, MANY))
    assert shown.count("\n") < 1500
    assert "more, in the result and on disk" in shown


def test_a_result_of_many_workers_is_a_page() -> None:
    """What is displayed of 1024 workers that printed 500 lines each is bounded; the result holds all of it."""
    text = [f"rank {{}} line {line}\n" for line in range(500)]
    result = CellResult(
        tuple(
            WorkerResult(
                Worker(rank, 0, rank, "n-0", "10.0.0.1", "10.0.0.1"),
                stdout="".join(text).format(*[rank] * 500),
            )
            for rank in range(MANY)
        ),
        total=MANY,
    )
    assert str(result).count("\n") < 20_000
    assert all(out.count("\n") == 500 for out in result.stdout)


def test_many_lines_of_many_workers_are_merged() -> None:
    """Lines that 1024 workers print each for themselves fall into a block for each worker."""
    texts = {rank: "\n".join(f"{rank}: {line}" for line in range(200)) for rank in range(MANY)}
    assert interleave(texts, total=MANY) == [(f"rank {rank}", text) for rank, text in texts.items()]
