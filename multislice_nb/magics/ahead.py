"""Reads the code of the lines to come while nobody waits: the magics' own, and the panel's with ipywidgets.

Read when the panel opens, ipywidgets alone would take most of the time for which the kernel does not answer.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import threading
from typing import TYPE_CHECKING

from multislice_nb._watched import is_watched

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["read", "read_soon"]

_CODE = (
    "multislice_nb.magics.parser",
    "multislice_nb.magics.actions",
    "multislice_nb.magics.completion",
    "multislice_nb.widgets.control",
    "multislice_nb.widgets.board",
    "multislice_nb.widgets.worker_tables",
    "multislice_nb.widgets.planner",  # with what it calculates with, most of what the tabs need
)
_LATER = 1.0
"""Seconds after the extension was loaded: the cell that loaded it is not to be slowed down."""


def read_soon(shell: InteractiveShell) -> None:
    """Have it read once the kernel has had a moment for itself; not where nobody is there to open a panel."""
    kernel = getattr(shell, "kernel", None)
    loop = getattr(getattr(kernel, "io_loop", None), "asyncio_loop", None)
    if loop is not None and is_watched(shell):
        loop.call_later(_LATER, read)


def read() -> None:
    """Read it now, in a thread of its own."""
    threading.Thread(target=_import, name="multislice_nb reader", daemon=True).start()


def _import() -> None:
    for module in _CODE:
        with contextlib.suppress(ImportError):  # without ipywidgets the panel is a table
            importlib.import_module(module)
    gc.collect()  # else what was just made is gone through when the panel opens, which takes longer than the panel
