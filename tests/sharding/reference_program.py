"""The program of the overview's sharding benchmark, as a user of the planner would write it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

WIDTH = 2048
LAYERS = 4


def build(mesh: Mesh, batch: int, width: int = WIDTH, layers: int = LAYERS) -> tuple[Any, Any]:
    """A jitted training step and the shapes of its arguments: batch rows per device, bf16, plain SGD."""
    activation = NamedSharding(mesh, PartitionSpec(("data", "fsdp"), "tensor"))
    weight = NamedSharding(mesh, PartitionSpec("tensor", "fsdp"))

    def half(x: jax.Array, matrix: jax.Array) -> jax.Array:
        pinned: jax.Array = jax.lax.with_sharding_constraint(jax.nn.sigmoid(x @ matrix), activation)
        return pinned

    def loss(params: Any, x: jax.Array) -> jax.Array:
        for up, down in params:
            x = half(half(x, up), down)
        return jnp.sum(x)

    def step(params: Any, x: jax.Array) -> tuple[Any, jax.Array]:
        value, gradients = jax.value_and_grad(loss)(params, x)
        return jax.tree.map(lambda old, slope: old - 1e-4 * slope, params, gradients), value

    def struct(shape: tuple[int, ...], sharding: NamedSharding) -> Any:
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=sharding)

    params = [(struct((width, 4 * width), weight), struct((4 * width, width), weight))] * layers
    outputs = ([(weight, weight)] * layers, NamedSharding(mesh, PartitionSpec()))
    x = struct((batch * mesh.size, width), activation)
    return jax.jit(step, out_shardings=outputs), (params, x)
