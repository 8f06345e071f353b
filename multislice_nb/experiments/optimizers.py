"""Three optimisers as pure functions over trees, to see what their state costs in memory and time.

State lies as the parameters do, in float32, so that it is sharded with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from multislice_nb.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable

    from multislice_nb.experiments.workload import Tree

NAMES = ("sgd", "momentum", "adam")
_MOMENTUM = 0.9
_ADAM = (0.9, 0.999, 1e-8)  # Kingma and Ba, arXiv:1412.6980, section 2


def check(name: str) -> None:
    """Refuse an optimiser that does not exist.

    Raises:
        InvalidRequestError: It is none of `NAMES`.
    """
    if name not in NAMES:
        raise InvalidRequestError(f"There is no optimizer {name}.", fix=f"Choose one of {', '.join(NAMES)}.")


def slots(name: str, params: Tree) -> Tree:
    """An optimiser's state before the first step."""

    def zeros() -> Tree:
        return jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.float32), params)

    if name == "momentum":
        return zeros()
    return (zeros(), zeros(), jnp.zeros((), jnp.int32)) if name == "adam" else ()


def slot_shardings(name: str, params: Tree, scalar: jax.sharding.Sharding) -> Tree:
    """The shardings of `slots`, from those of the parameters and of a scalar."""
    if name == "momentum":
        return params
    return (params, params, scalar) if name == "adam" else ()


def update(name: str, rate: float) -> Callable[[Tree, Tree, Tree], tuple[Tree, Tree]]:
    """A function of (parameters, gradients, slots) that gives new parameters and slots."""
    return {"sgd": _sgd, "momentum": _momentum, "adam": _adam}[name](rate)


def _sgd(rate: float) -> Callable[[Tree, Tree, Tree], tuple[Tree, Tree]]:
    def apply(params: Tree, gradients: Tree, slots: Tree) -> tuple[Tree, Tree]:
        return jax.tree.map(lambda p, g: p - (rate * g).astype(p.dtype), params, gradients), slots

    return apply


def _momentum(rate: float) -> Callable[[Tree, Tree, Tree], tuple[Tree, Tree]]:
    def apply(params: Tree, gradients: Tree, slots: Tree) -> tuple[Tree, Tree]:
        slots = jax.tree.map(lambda m, g: _MOMENTUM * m + g.astype(jnp.float32), slots, gradients)
        return jax.tree.map(lambda p, m: p - (rate * m).astype(p.dtype), params, slots), slots

    return apply


def _adam(rate: float) -> Callable[[Tree, Tree, Tree], tuple[Tree, Tree]]:
    first, second, epsilon = _ADAM

    def apply(params: Tree, gradients: Tree, slots: Tree) -> tuple[Tree, Tree]:
        means, squares, count = slots
        gradients = jax.tree.map(lambda g: g.astype(jnp.float32), gradients)
        means = jax.tree.map(lambda m, g: first * m + (1 - first) * g, means, gradients)
        squares = jax.tree.map(lambda v, g: second * v + (1 - second) * g**2, squares, gradients)
        count += 1
        scale = rate * jnp.sqrt(1 - second**count) / (1 - first**count)

        def move(p: jax.Array, m: jax.Array, v: jax.Array) -> jax.Array:
            moved: jax.Array = p - (scale * m / (jnp.sqrt(v) + epsilon)).astype(p.dtype)
            return moved

        return jax.tree.map(move, params, means, squares), (means, squares, count)

    return apply
