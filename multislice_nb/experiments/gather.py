"""Fully sharded parameters: each is gathered over the fsdp axis just before it is used.

Left to the compiler, a product of activations over ((data, fsdp), tensor) with a parameter over (tensor, fsdp) is
partitioned in a way that is wrong when all three axes are larger than one: XLA (jaxlib 0.10.2) then exchanges rows
between devices and does not put them back. Saying where the gathering happens leaves it no choice, and is what fully
sharded data parallelism means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax

if TYPE_CHECKING:
    from jax.sharding import PartitionSpec

    from multislice_nb.experiments.workload import Constrain


def gathered(param: jax.Array, whole: PartitionSpec, shard: PartitionSpec, constrain: Constrain) -> jax.Array:
    """A parameter, gathered for the product that follows; its gradient goes back to where the parameter lies.

    Args:
        param: The parameter.
        whole: Its layout while in use.
        shard: Its layout otherwise; also of its gradient, so that summing and scattering can be one collective.
        constrain: Pins an array to a layout.
    """

    @jax.custom_vjp
    def gather(value: jax.Array) -> jax.Array:
        return constrain(value, whole)

    def forward(value: jax.Array) -> tuple[jax.Array, None]:
        return constrain(value, whole), None

    def backward(_: None, gradient: jax.Array) -> tuple[jax.Array]:
        return (constrain(gradient, shard),)

    gather.defvjp(forward, backward)
    result: jax.Array = gather(param)
    return result
