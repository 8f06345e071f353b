"""Programs on their way to the compiling process: pickled, with shapes and partition specs instead of arrays."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from multislice_nb.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable

    import jax

__all__ = ["described", "packed", "with_arguments"]


@dataclass(frozen=True)
class _Shaped:
    """A jitted function with the shapes of its arguments, as a program of the mesh."""

    function: bytes
    leaves: tuple[tuple[tuple[int, ...], str, Any], ...]
    tree: Any

    def __call__(self, mesh: jax.sharding.Mesh) -> tuple[Any, Any]:
        import jax
        from jax.sharding import NamedSharding

        structs = [
            jax.ShapeDtypeStruct(  # type: ignore[no-untyped-call]  # JAX leaves it without types
                shape, dtype, sharding=None if spec is None else NamedSharding(mesh, spec)
            )
            for shape, dtype, spec in self.leaves
        ]
        # The mesh in use lets the function constrain intermediates by PartitionSpec alone.
        jax.set_mesh(mesh)
        return pickle.loads(self.function), jax.tree.unflatten(self.tree, structs)  # noqa: S301 - our own pickle


def packed(program: Callable[..., Any]) -> bytes:
    """A function as bytes: by its name where it can be imported, and whole where it was typed into a notebook.

    Raises:
        InvalidRequestError: If it holds something that cannot be sent to another process.
    """
    import cloudpickle  # type: ignore[import-untyped]  # it ships no types

    try:
        return bytes(cloudpickle.dumps(program))
    except Exception as error:
        raise InvalidRequestError(
            f"{getattr(program, '__name__', program)!r} cannot be sent to the compiling process: {error}",
            fix="Give a function of the mesh that makes the jitted function, and keep arrays and devices out of it.",
        ) from error


def with_arguments(function: Callable[..., Any], args: tuple[Any, ...], specs: Any = None) -> _Shaped:
    """A jitted function and its arguments as a program of the mesh.

    Args:
        function: Jitted. It may constrain intermediates by `PartitionSpec`; the mesh is set.
        args: Its arguments: arrays or `jax.ShapeDtypeStruct`s. A `NamedSharding` of theirs is taken over by its
            spec.
        specs: Partition specs instead, in the same tree.

    Raises:
        InvalidRequestError: If the function is not jitted, or specs and arguments differ in their tree.
    """
    import jax
    from jax.sharding import PartitionSpec

    if not hasattr(function, "lower"):
        raise InvalidRequestError(
            f"{getattr(function, '__name__', function)!r} is not jitted.", fix="Give jax.jit(function)."
        )
    leaves, tree = jax.tree.flatten(args)
    own = [getattr(getattr(leaf, "sharding", None), "spec", None) for leaf in leaves]
    if specs is not None:
        is_spec = lambda leaf: leaf is None or isinstance(leaf, PartitionSpec)  # noqa: E731 - a leaf test
        own, spec_tree = jax.tree.flatten(specs, is_leaf=is_spec)
        if str(spec_tree) != str(tree):
            raise InvalidRequestError(
                f"The specs are a tree {spec_tree}, the arguments {tree}.",
                fix="Give a PartitionSpec for each array, in a tuple like that of the arguments.",
            )
    shapes = tuple((tuple(leaf.shape), str(leaf.dtype), spec) for leaf, spec in zip(leaves, own, strict=True))
    return _Shaped(packed(function), shapes, tree)


def described(program: Callable[..., Any]) -> str:
    """A short name of a program."""
    inner = getattr(program, "func", program)
    name = str(getattr(inner, "__name__", type(inner).__name__))
    return "program" if name in {"<lambda>", "_Shaped"} else name
