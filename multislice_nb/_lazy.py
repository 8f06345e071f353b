"""Public names of a package that come with their first use, so that importing the package costs next to nothing."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["lazily"]


def lazily(
    package: str, homes: Mapping[str, str | tuple[str, str]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package.

    Args:
        package: Its `__name__`.
        homes: By public name the module of the package that has it; with another name there as a pair, in which
            the empty name stands for the module itself.
    """

    def get(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = homes[name]
        module, attribute = home if isinstance(home, tuple) else (home, name)
        found = importlib.import_module(f"{package}.{module}")
        return getattr(found, attribute) if attribute else found

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return get, names
