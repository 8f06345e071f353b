"""Panels: live views of queued resources and workers, each also as HTML and as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multislice_nb._lazy import lazily

if TYPE_CHECKING:
    from multislice_nb.widgets.control import Panel, panel

__all__ = ["Panel", "panel"]

# Late, so that ipywidgets comes with the first panel.
_HOMES = {"Panel": "control", "panel": "control"}

__getattr__, __dir__ = lazily(__name__, _HOMES)
