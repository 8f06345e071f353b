"""Random numbers that cost a compiler next to nothing.

Measuring needs parameters and batches that are not all alike, not good randomness. Drawn with `jax.random`, they take
longer to compile than the training step itself, once for every configuration. Each number here is a hash of its
place in the array, so that a shard needs nothing of the others, and shards of any shape hold the same array.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

if TYPE_CHECKING:
    from collections.abc import Sequence

# The finaliser of MurmurHash3 (Austin Appleby, public domain): all bits of the result depend on all of the input.
_ROUNDS = ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1))


def bits(key: jax.Array, salt: int, shape: Sequence[int]) -> jax.Array:
    """Numbers of 32 bits that differ by place, by salt and by key.

    Args:
        key: From `jax.random.key`.
        salt: Another number for each array drawn with the same key.
        shape: Of the array.
    """
    seed = jax.random.key_data(key).ravel()[-1].astype(jnp.uint32)
    value = jnp.full(tuple(shape), salt % 2**32, jnp.uint32) * jnp.uint32(0x9E3779B9) + seed
    for axis in range(len(shape)):
        stride = jnp.uint32(math.prod(shape[axis + 1 :]) % 2**32)
        value += jax.lax.broadcasted_iota(jnp.uint32, tuple(shape), axis) * stride
    for shift, factor in _ROUNDS:
        value = (value ^ (value >> shift)) * jnp.uint32(factor)
    mixed: jax.Array = value
    return mixed


def uniform(
    key: jax.Array, salt: int, shape: Sequence[int], dtype: str, *, deviation: float = 1.0
) -> jax.Array:
    """Numbers around 0, evenly spread, with the given standard deviation."""
    unit = (bits(key, salt, shape) >> 8).astype(jnp.float32) * 2.0**-23 - 1.0
    scaled: jax.Array = (unit * (deviation * math.sqrt(3.0))).astype(dtype)
    return scaled
