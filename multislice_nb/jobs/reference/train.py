"""Train a small network on several slices, and go on after a preemption as if there had been none.

Run it as a job: `python3 -m multislice_nb.jobs.reference.train --steps 200`. It is written to be copied: what
belongs to a model of your own is `Squares`, `loss_of` and the shapes in `main`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from multislice_nb.jobs import Checkpoints, initialize
from multislice_nb.jobs.data import batches, on_mesh
from multislice_nb.sharding import Parallelism, make_mesh

if TYPE_CHECKING:
    from collections.abc import Sequence

Params = dict[str, jax.Array]


class Squares:
    """Records to learn from: vectors, each with the sum of its squares; made from the index alone."""

    def __init__(self, count: int, width: int) -> None:
        self._count = count
        self._width = width

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> dict[str, np.ndarray[Any, Any]]:
        x = np.random.default_rng(index).standard_normal(self._width, np.float32)
        return {"id": np.array(index, np.int32), "x": x, "y": np.sum(x * x, keepdims=True)}


def loss_of(params: Params, batch: dict[str, jax.Array]) -> jax.Array:
    """Mean squared error of a network with one hidden layer."""
    hidden = jax.nn.gelu(batch["x"] @ params["in"])
    return jnp.mean((hidden @ params["out"] - batch["y"]) ** 2)


@jax.jit
def train_step(state: dict[str, Params], batch: dict[str, jax.Array]) -> tuple[dict[str, Params], jax.Array]:
    """One step of stochastic gradient descent with momentum."""
    loss, gradients = jax.value_and_grad(loss_of)(state["params"], batch)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, state["momentum"], gradients)
    params = jax.tree.map(lambda p, m: p - 1e-3 * m, state["params"], momentum)
    return {"params": params, "momentum": momentum}, loss


def initial_state(mesh: jax.sharding.Mesh, width: int, hidden: int) -> dict[str, Params]:
    """Parameters and momentum, sharded over `fsdp` and replicated over `data`."""
    shardings = {"in": NamedSharding(mesh, P(None, "fsdp")), "out": NamedSharding(mesh, P("fsdp", None))}

    def make() -> Params:
        first, second = jax.random.split(jax.random.key(0))
        return {
            "in": jax.random.normal(first, (width, hidden)) / width**0.5,
            "out": jax.random.normal(second, (hidden, 1)) / hidden**0.5,
        }

    params = jax.jit(make, out_shardings=shardings)()
    return {"params": params, "momentum": jax.tree.map(jnp.zeros_like, params)}


def main(argv: Sequence[str] | None = None) -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--every", type=int, default=20, help="steps between two checkpoints")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds to wait after each step")
    arguments = parser.parse_args(argv)

    initialize()
    slices = int(os.environ.get("MULTISLICE_NB_SLICES", "1"))
    # Data parallelism between slices, over DCN; fully sharded inside a slice, over ICI.
    mesh = make_mesh(Parallelism(ici_fsdp=-1, dcn_data=slices).resolve(jax.device_count() // slices, slices))
    state = initial_state(mesh, arguments.width, arguments.hidden)
    data = batches(Squares(10_000, arguments.width), batch_size=arguments.batch_size)

    checkpoints = Checkpoints(every=arguments.every)
    state, start = checkpoints.restore(state, data)
    if jax.process_index() == 0:
        print(f"{jax.device_count()} devices, from step {start}")
    results = Path(os.environ.get("MULTISLICE_NB_RESULTS", "."))
    for step in range(start + 1, arguments.steps + 1):
        batch = next(data)
        # All of this process's devices are waited for: what one of them still says about its connections would
        # otherwise come in the middle of our line.
        state, loss = jax.block_until_ready(train_step(state, on_mesh(batch, mesh)))
        line = json.dumps({"step": step, "loss": float(loss), "ids": batch["id"].tolist()}) + "\n"
        sys.stdout.write(line)
        with (results / "metrics.jsonl").open("a") as file:
            file.write(line)
        checkpoints.after(step, state, data)
        time.sleep(arguments.pause)
    checkpoints.close()


if __name__ == "__main__":
    main()
