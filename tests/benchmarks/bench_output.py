"""Much output: workers that print together, what of it arrives, and what it costs the notebook.

    python tests/benchmarks/bench_output.py [workers [lines]]

16 workers print 100 000 lines each if nothing is said. Every line must be in the result and on disk, or the run
fails; the notebook's loop is asked a hundred times a second meanwhile how late it is.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable

    from multislice_nb.cluster.progress import CellProgress


def main(workers: int, lines: int) -> None:
    """Print, count, and tell."""
    import multislice_nb as ms
    from multislice_nb.emulator import daemon

    daemon.ensure_running(owner_pid=os.getpid())
    queued_resource = ms.connect().create("output", accelerator_type=f"v4-{workers * 4}", node_count=2)
    try:
        queued_resource.wait()
        with ms.attach(queued_resource, deadline=600) as cluster:
            me, updates = psutil.Process(), list[int]()
            before = me.memory_info().rss

            def look(progress: CellProgress) -> None:
                updates.append(len(str(progress)))

            began = time.perf_counter()
            handle = cluster.submit(f"for i in range({lines}): print('line', i)")
            late = asyncio.run(lateness(lambda: handle.done))
            took = time.perf_counter() - began
            result = handle.result()
            expected = "".join(f"line {i}\n" for i in range(lines))
            lost = [w.worker.rank for w in result.workers if w.stdout != expected]
            off = [
                w.rank for w in cluster.workers if expected not in cluster.journal.path(w.rank).read_text()
            ]
            if lost or off:
                raise SystemExit(f"lines were lost: results of ranks {lost}, files of ranks {off}")
            cluster.run("for i in range(5000): print('line', i)", on_update=look)
            grown = (me.memory_info().rss - before) / 1e6
        print(
            "| workers | lines each | s | lines/s | late ms, median | late ms, most | notebook MB | screen |"
        )
        print("|---|---|---|---|---|---|---|---|")
        print(
            f"| {workers} | {lines} | {took:.1f} | {workers * lines / took:.0f} | "
            f"{statistics.median(late) * 1e3:.1f} | {max(late) * 1e3:.0f} | {grown:.0f} | "
            f"{len(updates)} updates of at most {max(updates, default=0)} characters |"
        )
    finally:
        queued_resource.delete(force=True)


async def lateness(done: Callable[[], bool]) -> list[float]:
    """How much later than asked a loop like the kernel's comes round, until it is done."""
    found = []
    while not done():
        asked = time.perf_counter()
        await asyncio.sleep(0.01)
        found.append(time.perf_counter() - asked - 0.01)
    return found


if __name__ == "__main__":
    numbers = [int(text) for text in sys.argv[1:]]
    with tempfile.TemporaryDirectory() as home:
        os.environ["MULTISLICE_NB_HOME"] = home
        from multislice_nb.emulator import daemon

        try:
            main(*(numbers + [16, 100_000][len(numbers) :]))
        finally:
            daemon.stop()
