"""A sweep of 3 strategies x 6 batch sizes on 4 emulated workers, beside a fresh gang of processes for each.

    python tests/benchmarks/bench_sweep.py [embedding] [steps]

All take turns, configuration by configuration, so that a drift of the machine's speed falls on each; what counts is the
ratio. A fresh gang is four processes that join jax.distributed, measure the configuration with the very same code and
end: over SSH on the same workers, as one runs a script on slices, and as the cheapest there is, forked on this machine.

Then, in the engines that are there, measurements take turns with a bare loop over the same program: a difference
would be what measuring costs.
"""

from __future__ import annotations

import asyncio
import base64
import os
import pickle
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multislice_nb.cluster import Cluster
    from multislice_nb.experiments import Configuration

STRATEGIES = ["fsdp", "tensor", "fsdp+tensor"]
BATCH_SIZES = [8, 16, 32, 64, 128, 256]
WORKERS, DEVICES = 4, 4
ROUNDS = 11

MEASURE = """
import base64, os, pickle
from multislice_nb.experiments.measure import measure
assert measure(pickle.loads(base64.b64decode("{configuration}")))["status"] == "ok"
os._exit(0)
"""

LOCAL = """
import sys, jax
jax.config.update("jax_num_cpu_devices", {devices})
jax.distributed.initialize(sys.argv[2], {workers}, int(sys.argv[1]), cluster_detection_method="deactivate")
"""

BARE = """
import time, jax
from multislice_nb.experiments.programs import compiled
from multislice_nb.experiments.training import keys

def bare(configuration, every):
    program = compiled(configuration)
    key, batch_key = keys()
    state, batch = jax.block_until_ready((program.make_state(key), program.make_batch(batch_key)))
    state, _ = jax.block_until_ready(program.step(state, batch))
    begun = time.perf_counter()
    for _ in range(configuration.steps):
        state, loss = program.step(state, batch)
        if every:
            loss.block_until_ready()
    jax.block_until_ready((state, loss))
    return (time.perf_counter() - begun) / configuration.steps
"""


def script(configuration: Configuration) -> str:
    """What a process of a fresh gang runs once it has joined."""
    return MEASURE.format(configuration=base64.b64encode(pickle.dumps(configuration)).decode())


def over_ssh(cluster: Cluster, configuration: Configuration) -> float:
    """Seconds that a gang of new processes on the workers takes for one configuration."""
    code = "import jax\njax.distributed.initialize()\n" + script(configuration)
    begun = time.perf_counter()
    cluster.shell.run("python3 -", stdin=code, distributed=True)
    return time.perf_counter() - begun


def forked(configuration: Configuration) -> float:
    """Seconds that a gang of new processes on this machine takes for one configuration."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    code = LOCAL.format(devices=DEVICES, workers=WORKERS) + script(configuration)
    begun = time.perf_counter()
    gang = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(rank), address],
            env=os.environ | {"JAX_PLATFORMS": "cpu"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for rank in range(WORKERS)
    ]
    try:
        if any(process.wait(timeout=300) for process in gang):
            raise SystemExit("a fresh gang failed")
    finally:
        for process in gang:
            process.kill()
            process.wait()
    return time.perf_counter() - begun


async def side_by_side(
    cluster: Cluster, folder: str, embedding: int, steps: int
) -> list[tuple[float, float, float]]:
    """For each configuration, seconds in the sweep, with a fresh gang over SSH and with one forked here."""
    from multislice_nb.experiments import SweepRequest, asweep
    from multislice_nb.experiments.running import Run

    request = SweepRequest(
        strategies=STRATEGIES, batch_sizes=BATCH_SIZES, embedding=embedding, layers=2, steps=steps
    )
    points = (await Run.begin(request, cluster)).points
    turns = []
    async with aclosing(asweep(request, cluster=cluster, path=Path(folder) / "rows.jsonl")) as sweep:
        await anext(sweep)
        for point in points:
            begun = time.perf_counter()
            await anext(sweep)
            ours = time.perf_counter() - begun
            far = await asyncio.to_thread(over_ssh, cluster, point)
            near = await asyncio.to_thread(forked, point)
            turns.append((ours, far, near))
            print(f"  {point}: {ours:.2f} s, over SSH {far:.2f} s, forked {near:.2f} s", flush=True)
    return turns


def against_bare(cluster: Cluster, point: Configuration) -> tuple[float, float]:
    """Seconds of a step as measured over those of a bare loop that waits for each step, and of one that does not."""
    cluster.run(BARE)
    told = base64.b64encode(pickle.dumps(point)).decode()
    load = f"import base64, pickle\npoint = pickle.loads(base64.b64decode({told!r}))"
    cluster.run(load)
    ratios = []
    for _ in range(ROUNDS):
        ranks = cluster.call("multislice_nb.experiments.measure:measure", point)
        measured = statistics.median(
            max(steps) for steps in zip(*(r["step_seconds"] for r in ranks), strict=True)
        )
        each = max(cluster.run("bare(point, True)").values)
        last = max(cluster.run("bare(point, False)").values)
        ratios.append((measured / each, measured / last))
    first, second = (statistics.median(column) for column in zip(*ratios, strict=True))
    return first, second


def main(embedding: int = 64, steps: int = 10) -> None:
    """Attach, take turns, and print the table."""
    from multislice_nb.emulator import daemon

    with tempfile.TemporaryDirectory() as home:
        os.environ["MULTISLICE_NB_HOME"] = home
        import multislice_nb as ms
        from multislice_nb._portal import sync
        from multislice_nb.experiments import MLP, Configuration
        from multislice_nb.sharding import parse_strategy

        try:
            queued_resource = ms.connect().create("bench", accelerator_type="v4-16", node_count=2)
            queued_resource.wait()
            with ms.attach(queued_resource) as cluster:
                turns = sync(side_by_side, cluster, home, embedding, steps)
                point = Configuration(
                    strategy="fsdp",
                    parallelism=parse_strategy("fsdp", 8, 2),
                    batch_per_device=BATCH_SIZES[-1],
                    workload=MLP(4 * embedding, 2),
                    steps=steps,
                )
                each, last = against_bare(cluster, point)
        finally:
            daemon.stop()
    ours, far, near = (sum(column) for column in zip(*turns, strict=True))
    print("| what | here | beside it | ratio |\n|---|---|---|---|")
    for name, other in (("over SSH", far), ("forked on this machine", near)):
        print(
            f"| {len(turns)} configurations, a fresh gang {name} | {ours:.1f} s | {other:.1f} s | {other / ours:.1f} |"
        )
    print(f"| seconds of a step, against a bare loop that waits for each | | | {each:.3f} |")
    print(f"| the same, against a bare loop that waits for the last | | | {last:.3f} |")


if __name__ == "__main__":
    main(*(int(text) for text in sys.argv[1:]))
