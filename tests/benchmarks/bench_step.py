"""What measuring costs: steps of a sweep beside a bare loop over the same program, on 4 emulated workers.

    python tests/benchmarks/bench_step.py [rounds] [steps]

Both wait for every step and take the slowest worker of each step and the median over the steps. They take turns,
each first in every other round, on the programs of one and the same compilation. The loop runs in a cell, as one
writes it oneself. Of a second loop, which waits for nothing but its last step, the mean is shown: how far a step
that is waited for is from the throughput of steps that are not.
"""

from __future__ import annotations

import base64
import os
import pickle
import statistics
import sys
import tempfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multislice_nb.cluster import Cluster
    from multislice_nb.experiments import Configuration

EMBEDDING, LAYERS, BATCH = 256, 2, 256
LONGEST = 120.0
"""Seconds that one round may take in any of the ways."""

BARE = """
import time, jax
from multislice_nb.experiments.programs import compiled
from multislice_nb.experiments.training import keys

def bare(configuration, every):
    program = compiled(configuration)
    key, batch_key = keys()
    state, batch = jax.block_until_ready((program.make_state(key), program.make_batch(batch_key)))
    state, loss = jax.block_until_ready(program.step(state, batch))
    times = [time.perf_counter()]
    for _ in range(configuration.steps):
        state, loss = program.step(state, batch)
        if every:
            jax.block_until_ready((state, loss))
            times.append(time.perf_counter())
    jax.block_until_ready((state, loss))
    if not every:
        return (time.perf_counter() - times[0]) / configuration.steps
    return [after - before for before, after in zip(times, times[1:])]
"""


def slowest(steps_of_ranks: list[list[float]]) -> float:
    """The median over the steps of the worker that took longest for each."""
    return float(statistics.median(max(steps) for steps in zip(*steps_of_ranks, strict=True)))


def measured(cluster: Cluster, point: Configuration) -> float:
    """Seconds of a step as a sweep measures it."""
    ranks = cluster.call("multislice_nb.experiments.measure:measure", point, timeout=LONGEST)
    return slowest([one["step_seconds"] for one in ranks])


def turns(cluster: Cluster, point: Configuration, rounds: int) -> list[tuple[float, float, float]]:
    """For each round seconds of a step as measured, of a loop that waits for each, and of one that does not."""
    cluster.run(BARE)
    told = base64.b64encode(pickle.dumps(point)).decode()
    cluster.run(f"import base64, pickle\npoint = pickle.loads(base64.b64decode({told!r}))")
    measured(cluster, point)  # compiles
    found = []
    for number in range(rounds):
        ways = {
            "ours": lambda: measured(cluster, point),
            "each": lambda: slowest(cluster.run("bare(point, True)").values),
            "last": lambda: max(cluster.run("bare(point, False)").values),
        }
        order = list(ways) if number % 2 else list(ways)[::-1]
        seconds = {name: ways[name]() for name in order}
        found.append((seconds["ours"], seconds["each"], seconds["last"]))
        print(
            f"  round {number + 1}: {seconds['ours'] * 1e3:.1f} ms, bare {seconds['each'] * 1e3:.1f} ms, "
            f"waiting for the last alone {seconds['last'] * 1e3:.1f} ms",
            flush=True,
        )
    return found


def main(rounds: int = 11, steps: int = 10) -> None:
    """Attach, take turns, and print the table."""
    from multislice_nb.emulator import daemon

    with tempfile.TemporaryDirectory() as home:
        os.environ["MULTISLICE_NB_HOME"] = home
        import multislice_nb as ms
        from multislice_nb.experiments import MLP, Configuration
        from multislice_nb.sharding import parse_strategy

        point = Configuration(
            strategy="fsdp",
            parallelism=parse_strategy("fsdp", 8, 2),
            batch_per_device=BATCH,
            workload=MLP(EMBEDDING, LAYERS),
            steps=steps,
        )
        try:
            queued_resource = ms.connect().create("bench", accelerator_type="v4-16", node_count=2)
            queued_resource.wait(timeout=LONGEST)
            with ms.attach(queued_resource) as cluster:
                found = turns(cluster, point, rounds)
        finally:
            daemon.stop()
    print(
        "| TFLOP/s of a sweep over those of a bare loop | median of the rounds | quartiles |\n|---|---|---|"
    )
    for name, at in (("that waits for each step", 1), ("that waits for the last", 2)):
        ratios = [one[at] / one[0] for one in found]
        low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
        print(f"| {name} | {middle:.3f} | {low:.3f} to {high:.3f} |")


if __name__ == "__main__":
    main(*(int(text) for text in sys.argv[1:]))
