"""`%load_ext multislice_nb`, and with it `%multislice` and `%%multislice`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["load_ipython_extension", "unload_ipython_extension"]


def load_ipython_extension(shell: InteractiveShell) -> None:
    """What `%load_ext multislice_nb` calls. Doing it again does nothing."""
    from multislice_nb.magics import extension

    extension.load(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """What `%unload_ext multislice_nb` calls: takes everything back that loading did."""
    from multislice_nb.magics import extension

    extension.unload(shell)
