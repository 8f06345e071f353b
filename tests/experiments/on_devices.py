"""What the tests run in a process with eight CPU devices."""

from __future__ import annotations

import dataclasses
import math
import os
import re
import signal
import time
from typing import TYPE_CHECKING

import jax
import numpy as np

from multislice_nb.experiments import compiling_once, noise, programs
from multislice_nb.experiments.measure import measure
from multislice_nb.experiments.training import (
    Options,
    arguments,
    initial_batch,
    initial_state,
    keys,
    train_step,
)
from multislice_nb.experiments.workload import MLP
from multislice_nb.sharding import Parallelism, make_mesh

if TYPE_CHECKING:
    from multislice_nb.experiments.configuration import Configuration
    from multislice_nb.experiments.workload import Workload


def trained(
    workload: Workload, parallelism: Parallelism, options: Options, steps: int, batch: int
) -> tuple[list[float], list[np.ndarray]]:
    """Losses, and how far each parameter moved, on as many devices as the parallelism has."""
    mesh = make_mesh(parallelism, jax.devices()[: parallelism.device_count])
    state = initial_state(workload, mesh, options)(keys(7)[0])
    data = initial_batch(workload, mesh, batch)(keys(7)[1])
    begun = [np.asarray(leaf, np.float32) for leaf in jax.tree.leaves(state.params)]
    step = train_step(workload, mesh, options)
    losses = []
    for _ in range(steps):
        state, loss = step(state, data)
        losses.append(float(loss))
    ended = [np.asarray(leaf, np.float32) for leaf in jax.tree.leaves(state.params)]
    return losses, [after - before for before, after in zip(begun, ended, strict=True)]


def shard_shapes(
    workload: Workload, parallelism: Parallelism, batch: int
) -> tuple[list[tuple[int, ...]], int]:
    """The shapes that one device holds of the parameters and the batch, and the number of arrays made."""
    before = len(jax.live_arrays())
    shapes = arguments(workload, make_mesh(parallelism), batch)
    local = [leaf.sharding.shard_shape(leaf.shape) for leaf in jax.tree.leaves(shapes)]
    return local, len(jax.live_arrays()) - before


def dot_flops(
    workload: Workload, parallelism: Parallelism, batch: int, options: Options
) -> tuple[float, float]:
    """FLOPs of a device: of the matrix products in the compiled program's text, and of its cost analysis."""
    mesh = make_mesh(parallelism)
    compiled = train_step(workload, mesh, options).lower(*arguments(workload, mesh, batch, options)).compile()
    shape = re.compile(r"%?([\w.-]+) = \w+\[([\d,]*)\]")
    shapes, total = {}, 0.0
    text, costs = compiled.as_text(), compiled.cost_analysis()
    assert text
    assert costs
    for line in text.splitlines():
        found = shape.search(line)
        if not found:
            continue
        sizes = [int(size) for size in found[2].split(",") if size]
        shapes[found[1]] = sizes
        dot = re.search(r" dot\(.*?%([\w.-]+), .*lhs_contracting_dims=\{([\d,]+)\}", line)
        if dot:
            contracted = [shapes[dot[1]][int(axis)] for axis in dot[2].split(",")]
            total += 2 * math.prod(sizes) * math.prod(contracted)
    return total, costs["flops"]


def donated() -> tuple[bool, bool]:
    """Whether the state given to a step is gone afterwards, with and without donation."""
    mesh = make_mesh(Parallelism(ici_fsdp=8))

    def gone(options: Options) -> bool:
        state = initial_state(MLP(32, 1), mesh, options)(keys()[0])
        batch = initial_batch(MLP(32, 1), mesh, 64)(keys()[1])
        jax.block_until_ready(train_step(MLP(32, 1), mesh, options)(state, batch))
        return all(leaf.is_deleted() for leaf in jax.tree.leaves(state))

    return gone(Options(donate=True)), gone(Options(donate=False))


def process() -> int:
    """Which process answers."""
    return os.getpid()


def sleep(seconds: float) -> None:
    """Take a while."""
    time.sleep(seconds)


def die() -> None:
    """End as a process does that the operating system kills."""
    os.kill(os.getpid(), signal.SIGKILL)


def noise_moments(shape: tuple[int, ...], deviation: float) -> tuple[float, float, float, bool]:
    """Mean, deviation and largest correlation of rows of an array of noise, and whether two salts differ."""
    first, second = (
        np.asarray(noise.uniform(keys()[0], salt, shape, "float32", deviation=deviation)) for salt in (0, 1)
    )
    correlations = np.corrcoef(np.concatenate([first, second])) - np.eye(2 * shape[0])
    return first.mean(), first.std(), np.abs(correlations).max(), bool((first != second).all())


def programs_made() -> int:
    """How often a configuration was compiled in this process."""
    return programs._compiled.cache_info().misses


def named_by_mesh(parallelism: Parallelism) -> tuple[tuple[int, ...], str, str]:
    """The shape of a mesh, the text of a program on it, and the name under which workers share that program."""
    mesh = make_mesh(parallelism)
    lowered = initial_batch(MLP(32, 1), mesh, 64).lower(keys()[1])
    name = compiling_once._name(lowered, list(mesh.devices.flat))
    return mesh.devices.shape, lowered.as_text(), name


def cannot_compile_ahead(configuration: Configuration) -> bool:
    """Whether a configuration that does not compile leaves the measurement before it alone."""
    broken = dataclasses.replace(configuration, workload=Broken())
    return measure(configuration, ahead=broken)["status"] == "ok"


@dataclasses.dataclass(frozen=True)
class Broken(MLP):
    """A model that cannot be compiled."""

    def loss(self, params, batch, constrain, *, remat=False):
        """Ask the compiler for a function that does not exist."""
        (out,) = jax.ffi.ffi_call("no_such_target", [jax.ShapeDtypeStruct((), "float32")])()
        return out + 0 * jax.numpy.sum(params[0][0]).astype("float32")


@dataclasses.dataclass(frozen=True)
class Diverging(MLP):
    """A model whose loss is no number."""

    def loss(self, params, batch, constrain, *, remat=False):
        """Infinite from the first step on."""
        return jax.numpy.inf * super().loss(params, batch, constrain, remat=remat)


@dataclasses.dataclass(frozen=True)
class Scanned(MLP):
    """A model that runs its first layer so many times, in one loop."""

    def loss(self, params, batch, constrain, *, remat=False):
        """The mean of what comes out of the last round."""
        up, down = params[0]

        def layer(x, _):
            return jax.nn.sigmoid(jax.nn.sigmoid(x @ up.T) @ down), None

        return jax.numpy.mean(jax.lax.scan(layer, batch, length=self.layers)[0], dtype="float32")
