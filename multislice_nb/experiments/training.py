"""A training step of a workload on a mesh: shapes, arguments and the jitted function.

Nothing here touches data until asked: `arguments` gives shapes with shardings, which is all that a compiler needs.
"""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, NamedTuple

import jax
from jax.sharding import NamedSharding, PartitionSpec

from multislice_nb.errors import InvalidRequestError
from multislice_nb.experiments import optimizers

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax.sharding import Mesh
    from jax.stages import Wrapped as JitWrapped

    from multislice_nb.experiments.workload import Tree, Workload


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """How a workload is trained.

    Attributes:
        optimizer: `sgd`, `momentum` or `adam`; the latter two keep one and two float32 copies of the parameters.
        learning_rate: Of each of them.
        remat: Compute each layer again in the backward pass rather than keep its activations.
        donate: Let the step reuse the memory of the state it is given.
    """

    optimizer: str = "sgd"
    learning_rate: float = 1e-4
    remat: bool = False
    donate: bool = True

    def __post_init__(self) -> None:
        optimizers.check(self.optimizer)
        if not isinstance(self.learning_rate, Real) or not math.isfinite(self.learning_rate):
            raise InvalidRequestError(
                f"learning_rate cannot be {self.learning_rate!r}.", fix="Give a number, such as 1e-4."
            )


class State(NamedTuple):
    """What a step takes and returns."""

    params: Tree
    slots: Tree
    """The optimiser's own memory: trees like the parameters."""


class Arguments(NamedTuple):
    """The two arguments of a step, as arrays or as `jax.ShapeDtypeStruct`s."""

    state: State
    batch: Tree


def _state(workload: Workload, options: Options, key: jax.Array) -> State:
    params = workload.init(key)
    return State(params, optimizers.slots(options.optimizer, params))


def keys(seed: int = 0) -> tuple[jax.Array, jax.Array]:
    """The random keys of state and batch."""
    return jax.random.key(seed), jax.random.key(seed + 1)


def shardings(workload: Workload, mesh: Mesh, options: Options) -> Arguments:
    """The sharding of each array of a step's arguments. Optimiser state lies as its parameters do."""

    def place(specs: Tree) -> Tree:
        is_spec = lambda leaf: isinstance(leaf, PartitionSpec)  # noqa: E731 - a leaf test, not a function of its own
        return jax.tree.map(partial(NamedSharding, mesh), specs, is_leaf=is_spec)

    params = place(workload.parameter_specs())
    scalar = NamedSharding(mesh, PartitionSpec())
    return Arguments(
        State(params, optimizers.slot_shardings(options.optimizer, params, scalar)),
        place(workload.batch_specs()),
    )


def arguments(workload: Workload, mesh: Mesh, batch: int, options: Options | None = None) -> Arguments:
    """A step's arguments as shapes with shardings: enough to compile it, and no memory used.

    Args:
        workload: The model.
        mesh: With axes data, fsdp and tensor; its devices may be those of a topology that is not there.
        batch: Rows over all devices.
        options: How it is trained.
    """
    options = options or Options()
    key, batch_key = keys()
    shapes = jax.eval_shape(
        lambda: Arguments(_state(workload, options, key), workload.batch(batch_key, batch))
    )

    def struct(shape: jax.ShapeDtypeStruct, sharding: NamedSharding) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=sharding)

    placed: Arguments = jax.tree.map(struct, shapes, shardings(workload, mesh, options))
    return placed


def initial_state(workload: Workload, mesh: Mesh, options: Options | None = None) -> JitWrapped:
    """A jitted function of a random key that makes the state before the first step, each shard where it belongs."""
    options = options or Options()
    make = partial(_state, workload, options)
    return jax.jit(make, out_shardings=shardings(workload, mesh, options).state)


def initial_batch(workload: Workload, mesh: Mesh, batch: int) -> JitWrapped:
    """A jitted function of a random key that makes a batch of so many rows, each shard where it belongs.

    Apart from the state, which does not change with the batch size and need not be compiled again for another.
    """
    make = partial(workload.batch, size=batch)
    return jax.jit(make, out_shardings=shardings(workload, mesh, Options()).batch)


def train_step(workload: Workload, mesh: Mesh, options: Options | None = None) -> JitWrapped:
    """The jitted step: (state, batch) to (new state, loss).

    Gradients are taken with respect to the parameters only. With `donate` the state passed in is gone afterwards.
    """
    options = options or Options()

    def constrain(x: jax.Array, spec: PartitionSpec) -> jax.Array:
        pinned: jax.Array = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec))
        return pinned

    def step(state: State, batch: Tree) -> tuple[State, jax.Array]:
        loss, gradients = jax.value_and_grad(workload.loss)(
            state.params, batch, constrain, remat=options.remat
        )
        update = optimizers.update(options.optimizer, options.learning_rate)
        return State(*update(state.params, gradients, state.slots)), loss

    state = shardings(workload, mesh, options).state
    scalar = NamedSharding(mesh, PartitionSpec())
    return jax.jit(step, out_shardings=(state, scalar), donate_argnums=(0,) if options.donate else ())


def program(
    workload: Workload, options: Options | None = None
) -> Callable[[Mesh, int], tuple[JitWrapped, Arguments]]:
    """What the planner compiles: a function of a mesh and a batch per device that gives the step and its shapes.

    `sharding.plan(program(MLP()), accelerator_type="v4-16", slices=2, strategy="fsdp", batch=131072)`.
    """
    return partial(_program, workload, options or Options())


def _program(
    workload: Workload, options: Options, mesh: Mesh, batch_per_device: int
) -> tuple[JitWrapped, Arguments]:
    batch = batch_per_device * mesh.devices.size
    return train_step(workload, mesh, options), arguments(workload, mesh, batch, options)
