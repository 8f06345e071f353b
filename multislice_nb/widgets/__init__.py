"""Panels: live views of queued resources and workers, each also as HTML and as text."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multislice_nb.widgets.control import Panel, panel

__all__ = ["Panel", "panel"]

# Late, so that ipywidgets comes with the first panel.
_HOMES = {"Panel": "control", "panel": "control"}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
