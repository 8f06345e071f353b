"""Variables of the notebook in the namespace of every worker's cells."""

from __future__ import annotations

import io
import keyword
import pickle
from typing import TYPE_CHECKING, Any

from multislice_nb._texts import grouped
from multislice_nb.cluster.attempt import Pickler
from multislice_nb.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DEFINE", "LARGEST", "define", "packed"]

DEFINE = f"{__name__}:define"
"""What runs on the workers, as `Cluster.call` names it."""

LARGEST = 64 << 20
"""Bytes of one pickled variable beyond which it is data, which a file carries better."""


def packed(variables: Mapping[str, Any]) -> dict[str, bytes]:
    """Each value as `pickle` bytes, JAX arrays as numpy arrays.

    Raises:
        InvalidRequestError: A name that no cell could use, or a value that cannot travel; nothing was sent.
    """
    if not variables:
        raise InvalidRequestError("There are no variables to define.", fix="Name one: define(steps=100).")
    for name in variables:
        if not name.isidentifier() or keyword.iskeyword(name):
            raise InvalidRequestError(f"{name!r} cannot be a variable's name.", fix="Choose another.")
    return {name: _packed(name, value) for name, value in variables.items()}


def define(variables: dict[str, bytes]) -> None:
    """On a worker: unpickle them into the namespace of its cells, all or none."""
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    values = {name: pickle.loads(data) for name, data in variables.items()}  # noqa: S301 - from the user's notebook
    shell.user_ns.update(values)


class _Sender(Pickler):
    """Refuses what pickle would only name: the worker's `__main__` has no such function or class."""

    def reducer_override(self, obj: object) -> Any:
        if getattr(obj, "__module__", None) == "__main__" and hasattr(obj, "__qualname__"):
            kind = "class" if isinstance(obj, type) else "function"
            raise pickle.PicklingError(f"the {kind} {obj.__qualname__} is this notebook's own")
        return super().reducer_override(obj)


def _packed(name: str, value: object) -> bytes:
    buffer = io.BytesIO()
    try:
        _Sender(buffer, protocol=5).dump(value)
    except Exception as error:
        raise InvalidRequestError(
            f"{name} cannot be sent to the workers: {error}.",
            fix="Make it there, in a %%multislice cell, or push a module and import it.",
        ) from error
    if buffer.tell() > LARGEST:
        raise InvalidRequestError(
            f"{name} is {grouped(buffer.tell())} bytes, and every worker would get them from here.",
            fix="Write it to a file and push that, which sends it once; or load it on the workers.",
        )
    return buffer.getvalue()
