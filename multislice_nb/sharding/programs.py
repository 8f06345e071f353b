"""Programs on their way to the compiling process: pickled, with shapes and partition specs instead of arrays."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from multislice_nb.errors import InvalidRequestError, PlanError
from multislice_nb.sharding.mesh import abstract_mesh

if TYPE_CHECKING:
    from collections.abc import Callable

    import jax

    from multislice_nb.sharding.parallelism import Parallelism

__all__ = ["described", "packed", "with_arguments"]


class _Leaf(NamedTuple):
    """One argument's array, as far as a compiler needs to know it."""

    shape: tuple[int, ...]
    dtype: Any
    weak_type: bool
    spec: Any

    def struct(self, sharding: jax.sharding.Sharding | None = None) -> jax.ShapeDtypeStruct:
        import jax

        return jax.ShapeDtypeStruct(self.shape, self.dtype, weak_type=self.weak_type, sharding=sharding)


@dataclass(frozen=True)
class _Shaped:
    """A jitted function with the shapes of its arguments, as a program of the mesh."""

    function: bytes
    donated: tuple[int, ...]
    leaves: tuple[_Leaf, ...]
    tree: Any

    def __call__(self, mesh: jax.sharding.Mesh) -> tuple[Any, Any]:
        import jax
        from jax.sharding import NamedSharding

        structs = [
            leaf.struct(None if leaf.spec is None else NamedSharding(mesh, leaf.spec)) for leaf in self.leaves
        ]
        # The mesh in use lets the function constrain intermediates by PartitionSpec alone.
        jax.set_mesh(mesh)
        function = pickle.loads(self.function)  # noqa: S301 - our own pickle
        return jax.jit(function, donate_argnums=self.donated), jax.tree.unflatten(self.tree, structs)


def packed(program: Callable[..., Any]) -> bytes:
    """A function as bytes: by its name where it can be imported, and whole where it was typed into a notebook.

    Raises:
        InvalidRequestError: If it holds something that cannot be sent to another process.
    """
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps(program))
    except Exception as error:
        raise InvalidRequestError(
            f"{getattr(program, '__name__', program)!r} cannot be sent to the compiling process: {error}",
            fix="Give a function of the mesh that makes the jitted function, and keep arrays and devices out of it.",
        ) from error


def with_arguments(
    function: Callable[..., Any], args: tuple[Any, ...], specs: Any, parallelism: Parallelism
) -> _Shaped:
    """A jitted function and its arguments as a program of the mesh.

    What it donates is kept. Its results are laid out as the compiler likes; a program of the mesh can say more.

    Args:
        function: Jitted. It may constrain intermediates by `PartitionSpec`; the mesh is set.
        args: Its arguments: arrays, random keys, `jax.ShapeDtypeStruct`s or numbers. A `NamedSharding` of theirs is
            taken over by its spec.
        specs: Partition specs instead, in the same tree, or None.
        parallelism: Of the mesh on which it is traced.

    Raises:
        InvalidRequestError: If the function is not jitted, an argument is no array, or specs and arguments differ
            in their tree.
        PlanError: If the function does not trace with these arguments.
    """
    import jax

    if not hasattr(function, "trace") or not hasattr(function, "__wrapped__"):
        raise InvalidRequestError(
            f"{getattr(function, '__name__', function)!r} is not jitted.", fix="Give jax.jit(function)."
        )
    leaves, tree = jax.tree.flatten(args)
    own = [getattr(getattr(leaf, "sharding", None), "spec", None) for leaf in leaves]
    if specs is not None:
        own = _flat_specs(specs, tree)
    shapes = tuple(_leaf(leaf, spec) for leaf, spec in zip(leaves, own, strict=True))
    return _Shaped(packed(function.__wrapped__), _donated(function, shapes, tree, parallelism), shapes, tree)


def _leaf(leaf: Any, spec: Any) -> _Leaf:
    import jax

    try:
        known = jax.typeof(leaf)
    except TypeError as error:
        raise InvalidRequestError(
            f"An argument is a {type(leaf).__name__}, of which the compiler knows no shape.",
            fix="Give arrays, shapes and numbers; bind whatever else the function takes beforehand.",
        ) from error
    return _Leaf(tuple(known.shape), known.dtype, bool(getattr(known, "weak_type", False)), spec)


def _flat_specs(specs: Any, tree: Any) -> list[Any]:
    import jax
    from jax.sharding import PartitionSpec

    flat, found = jax.tree.flatten(
        specs, is_leaf=lambda leaf: leaf is None or isinstance(leaf, PartitionSpec)
    )
    if str(found) != str(tree):
        raise InvalidRequestError(
            f"The specs are a tree {found}, the arguments {tree}.",
            fix="Give a PartitionSpec for each array, in a tuple like that of the arguments.",
        )
    return list(flat)


def _donated(
    function: Any, shapes: tuple[_Leaf, ...], tree: Any, parallelism: Parallelism
) -> tuple[int, ...]:
    """Which arguments the function gives away, found by tracing it on a mesh without devices."""
    import jax

    structs = [leaf.struct() for leaf in shapes]
    try:
        with jax.sharding.use_abstract_mesh(abstract_mesh(parallelism)):
            traced = function.trace(*jax.tree.unflatten(tree, structs))
    except Exception as error:
        raise PlanError(
            f"The program does not trace: {type(error).__name__}: {str(error).strip()[:500]}",
            fix="Constrain intermediates by PartitionSpec alone, or give a function of the mesh.",
        ) from error
    positional = traced.args_info[0]
    return tuple(
        number
        for number, argument in enumerate(positional)
        if (leaves := jax.tree.leaves(argument)) and all(leaf.donated for leaf in leaves)
    )


def described(program: Callable[..., Any]) -> str:
    """A short name of a program."""
    inner = getattr(program, "func", program)
    name = str(getattr(inner, "__name__", type(inner).__name__))
    return "program" if name in {"<lambda>", "_Shaped"} else name
