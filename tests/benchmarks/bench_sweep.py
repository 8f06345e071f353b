"""A sweep of 3 strategies x 6 batch sizes on 4 emulated workers, beside a fresh gang of processes for each.

    python tests/benchmarks/bench_sweep.py [every]

All take turns, configuration by configuration, so that a drift of the machine's speed falls on each; what counts is the
ratio. A fresh gang is four processes that start Python, join jax.distributed, measure the configuration with the very
same code and end. It is started as one runs a script on slices, over SSH on the same workers, beside every third
configuration, and as the cheapest there is, forked on this machine, beside each; with `every` beside every so many.

The workers of a sweep compile a program once for all, as emulated workers always do. The processes of a fresh gang
compile as JAX does by itself, each on its own and without a cache on disk.
"""

from __future__ import annotations

import asyncio
import base64
import os
import pickle
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from multislice_nb.cluster import Cluster
    from multislice_nb.experiments import Configuration, SweepRequest

STRATEGIES = ["fsdp", "tensor", "fsdp+tensor"]
BATCH_SIZES = [8, 16, 32, 64, 128, 256]
EMBEDDING, LAYERS = 64, 2
WORKERS, DEVICES = 4, 4
LONGEST = 120.0
"""Seconds that one configuration may take in any of the ways."""

MEASURE = """
import base64, os, pickle
os.environ.pop("MULTISLICE_NB_EMULATED_VM", None)  # each process compiles on its own
from multislice_nb.experiments.measure import measure
assert measure(pickle.loads(base64.b64decode("{configuration}")))["status"] == "ok"
jax.distributed.shutdown()
os._exit(0)
"""

JOIN = "import jax\njax.distributed.initialize()\n"

JOIN_HERE = """
import sys, jax
jax.config.update("jax_num_cpu_devices", {devices})
jax.distributed.initialize(sys.argv[2], {workers}, int(sys.argv[1]), cluster_detection_method="deactivate")
"""


def script(configuration: Configuration) -> str:
    """What a process of a fresh gang runs once it has joined."""
    return MEASURE.format(configuration=base64.b64encode(pickle.dumps(configuration)).decode())


def over_ssh(cluster: Cluster, configuration: Configuration) -> float:
    """Seconds that a gang of new processes on the workers takes for one configuration."""
    begun = time.perf_counter()
    cluster.shell.run("python3 -", stdin=JOIN + script(configuration), distributed=True, timeout=LONGEST)
    return time.perf_counter() - begun


def forked(configuration: Configuration) -> float:
    """Seconds that a gang of new processes on this machine takes for one configuration."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    code = JOIN_HERE.format(devices=DEVICES, workers=WORKERS) + script(configuration)
    begun = time.perf_counter()
    gang = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(rank), address],
            env=os.environ | {"JAX_PLATFORMS": "cpu"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # as workers are: Linux shares the processors among sessions
        )
        for rank in range(WORKERS)
    ]
    try:
        if any(process.wait(timeout=LONGEST) for process in gang):
            raise SystemExit("a fresh gang failed")
    finally:
        for process in gang:
            process.kill()
            process.wait()
    return time.perf_counter() - begun


def request() -> SweepRequest:
    """The sweep, with as many steps as one has by default."""
    from multislice_nb.experiments import SweepRequest

    return SweepRequest(
        strategies=STRATEGIES,
        batch_sizes=BATCH_SIZES,
        embedding=EMBEDDING,
        layers=LAYERS,
        timeout=LONGEST,
    )


async def side_by_side(cluster: Cluster, folder: str, every: int) -> dict[str, list[tuple[float, float]]]:
    """For each way to start a fresh gang, seconds in the sweep and of the gang for each configuration that had one."""
    from multislice_nb.experiments import asweep
    from multislice_nb.experiments.running import Run

    points = (await Run.begin(request(), cluster)).points
    turns: dict[str, list[tuple[float, float]]] = {"forked on this machine": [], "over SSH": []}
    async with aclosing(asweep(request(), cluster=cluster, path=Path(folder) / "rows.jsonl")) as sweep:
        await anext(sweep)
        for number, point in enumerate(points):
            begun = time.perf_counter()
            row = (await anext(sweep)).last
            ours = time.perf_counter() - begun
            if row is None or row["status"] != "ok":
                raise SystemExit(f"{point} was not measured: {row}")
            told = [f"{point}: {ours:.2f} s ({row['compile_seconds']:.2f} s of them compiling)"]
            ways = {"forked on this machine": every, "over SSH": 3 * every}
            for way in (name for name, each in ways.items() if number % each == 0):
                other = await (
                    asyncio.to_thread(over_ssh, cluster, point)
                    if way == "over SSH"
                    else asyncio.to_thread(forked, point)
                )
                turns[way].append((ours, other))
                told.append(f"{way} {other:.2f} s")
            print("  " + ", ".join(told), flush=True)
    return turns


def line(way: str, pairs: Sequence[tuple[float, float]]) -> str:
    """A row of the table."""
    ours, other = (sum(column) for column in zip(*pairs, strict=True))
    return f"| {len(pairs)} configurations, a fresh gang {way} | {ours:.1f} s | {other:.1f} s | {other / ours:.1f} |"


def main(every: int = 1) -> None:
    """Attach, take turns, and print the table."""
    from multislice_nb.emulator import daemon

    with tempfile.TemporaryDirectory() as home:
        os.environ["MULTISLICE_NB_HOME"] = home
        import multislice_nb as ms
        from multislice_nb._portal import sync

        try:
            queued_resource = ms.connect().create("bench", accelerator_type="v4-16", node_count=2)
            queued_resource.wait(timeout=LONGEST)
            with ms.attach(queued_resource) as cluster:
                turns = sync(side_by_side, cluster, home, every)
        finally:
            daemon.stop()
    print("| what | in the sweep | beside it | ratio |\n|---|---|---|---|")
    for way, pairs in turns.items():
        print(line(way, pairs))


if __name__ == "__main__":
    main(*(int(text) for text in sys.argv[1:]))
