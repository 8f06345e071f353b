"""How far one notebook reaches: attach, a trivial cell and output with more and more engines.

    python tests/benchmarks/bench_scale.py [engines ...]

Each size is measured in a process of its own with a deadline, and its row is printed at once, so that a size
which does not fit into this machine costs its own row and no other. All engines share the machine's cores:
compare sizes, not seconds.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable

    from multislice_nb.cluster import Cluster
    from multislice_nb.emulator.daemon import EmulatorAddress

SIZES = (4, 16, 32, 64)
PER_ENGINE = 190e6
"""Bytes of memory that an engine with JAX takes, the pages that it shares with others counted once."""
SPARE = 2e9
"""Bytes that are left to everything else on this machine."""
DEADLINE = 1200
"""Seconds for one size."""
LINES = 1000
"""Lines that each worker prints."""

PHASES = {
    "connecting": "connect",
    "preparing": "prepare",
    "starting": "start",
    "waiting": "register",
    "joining": "join",
}
HEADS = (
    "engines",
    "attach s",
    *(f"{name} s" for name in PHASES.values()),
    "CPU s",
    "cell ms",
    "notebook CPU ms",
    "controller CPU ms",
    "direct ms",
    "broadcast ms",
)
HEADS += (
    "lines/s",
    "notebook MB",
    "its files",
    "controller files",
    "controller MB",
    "engine MB",
    "processes",
)


def median_milliseconds(function: Callable[[], object], times: int = 30) -> float:
    """What a call takes, the first of them thrown away."""
    function()
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        function()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken) * 1e3


def attach(name: str) -> tuple[Cluster, dict[str, float]]:
    """Attach, and tell the seconds of each phase by the first word of its report."""
    import multislice_nb as ms

    began: list[tuple[str, float]] = []
    start = time.perf_counter()
    cluster = ms.attach(
        name, deadline=600, report=lambda text: began.append((text.split()[0], time.perf_counter()))
    )
    end = time.perf_counter()
    ends = [when for _, when in began[1:]] + [end]
    seconds = {PHASES[word]: after - when for (word, when), after in zip(began, ends, strict=True)}
    return cluster, {"attach": end - start} | seconds


def processor_seconds(emulator: EmulatorAddress) -> float:
    """Processor time so far of this process, the emulator and all that ran on its workers: what load does not blur."""
    reaper = psutil.Process(emulator.reaper_pid)
    everyone = [psutil.Process(), reaper, *reaper.children(recursive=True)]
    return sum(sum(process.cpu_times()[:4]) for process in everyone)  # its own, and of children that ended


def each_costs(processes: list[psutil.Process], function: Callable[[], object], times: int = 30) -> float:
    """Milliseconds of processor time that a call costs these processes together."""
    before = sum(sum(process.cpu_times()[:2]) for process in processes)
    for _ in range(times):
        function()
    return (sum(sum(process.cpu_times()[:2]) for process in processes) - before) / times * 1e3


def of_role(emulator: EmulatorAddress, role: str) -> list[psutil.Process]:
    """The processes that the workers' engines or the controller consist of."""
    found = []
    for process in psutil.Process(emulator.reaper_pid).children(recursive=True):
        words = process.cmdline()
        if "multislice_nb.cluster.engine" in words and words[-1] == role:
            found.append(process)
    return found


def measured(engines: int) -> dict[str, Any]:
    """Attach to that many engines, measure, and let them go."""
    import multislice_nb as ms
    from multislice_nb.emulator import daemon

    emulator = daemon.ensure_running()
    me, reaper = psutil.Process(), psutil.Process(emulator.reaper_pid)
    queued_resource = ms.connect().create(
        f"scale-{engines}", accelerator_type=f"v4-{engines * 4}", node_count=2
    )
    try:
        queued_resource.wait()
        before, busy = me.memory_info().rss, processor_seconds(emulator)
        cluster, seconds = attach(queued_resource.name)
        busy = processor_seconds(emulator) - busy
        everyone = cluster.client[:]
        broadcast = cluster.client.broadcast_view()
        controller = of_role(emulator, "controller")

        def cell() -> object:
            return cluster.run("1 + 1")

        row = {
            "engines": len(cluster.workers),
            **{f"{name} s": round(value, 1) for name, value in seconds.items()},
            "CPU s": round(busy, 1),
            "cell ms": round(median_milliseconds(cell), 1),
            "notebook CPU ms": round(each_costs([me], cell), 1),
            "controller CPU ms": round(each_costs(controller, cell), 1),
            "direct ms": round(median_milliseconds(lambda: everyone.apply_sync(os.getpid)), 1),
            "broadcast ms": round(median_milliseconds(lambda: broadcast.apply_sync(os.getpid)), 1),
        }
        printing = f"import os\nfor i in range({LINES}): print(os.getpid(), 'line', i)"
        each = median_milliseconds(lambda: cluster.run(printing), times=3) / 1e3
        row |= {
            "lines/s": round(engines * LINES / each),
            "notebook MB": round((me.memory_info().rss - before) / 1e6),
            "its files": me.num_fds(),
            "controller files": max(process.num_fds() for process in controller),
            "controller MB": round(sum(process.memory_full_info().pss for process in controller) / 1e6),
            "engine MB": round(
                sum(process.memory_full_info().pss for process in of_role(emulator, "engine")) / engines / 1e6
            ),
            "processes": len(reaper.children(recursive=True)) - 1,
        }
        cluster.shutdown()
    finally:
        queued_resource.delete(force=True)
    return row


def print_row(cells: list[object]) -> None:
    """A row of the table, at once."""
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def main(sizes: list[int]) -> None:
    """Measure one size after another."""
    from multislice_nb.emulator import daemon

    print_row(list(HEADS))
    print("|" + "---|" * len(HEADS), flush=True)
    for engines in sizes:
        free, wanted = psutil.virtual_memory().available, engines * PER_ENGINE + SPARE
        if free < wanted:
            print_row(
                [engines, f"left out: takes {wanted / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB are free"]
            )
            continue
        with tempfile.TemporaryDirectory() as home:
            os.environ["MULTISLICE_NB_HOME"] = home
            try:
                daemon.ensure_running(owner_pid=os.getpid())
                done = subprocess.run(
                    [sys.executable, __file__, "--one", str(engines)],
                    stdout=subprocess.PIPE,
                    text=True,
                    timeout=DEADLINE,
                    check=False,
                )
                lines = done.stdout.splitlines()
                row = json.loads(lines[-1]) if done.returncode == 0 and lines else {}
                print_row(
                    [row.get(head, "") for head in HEADS]
                    if row
                    else [engines, f"failed: exit {done.returncode}"]
                )
            except subprocess.TimeoutExpired:
                print_row([engines, f"not done within {DEADLINE} s"])
            finally:
                daemon.stop()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measured(int(sys.argv[2]))))
    else:
        main([int(text) for text in sys.argv[1:]] or list(SIZES))
