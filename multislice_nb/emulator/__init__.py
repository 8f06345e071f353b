"""A Cloud TPU on this machine: the same API, in a process of its own, with slices that are real processes.

`daemon` starts and finds it and is all that the rest of the package uses. Nothing here is imported until then.

What it protects: every call on the API port needs the bearer token, SSH takes only keys that the emulator
made (or that the owner of the token put into a node's metadata), everything listens on loopback addresses
only, and tokens and keys are readable by this user alone. What it does not: it isolates emulated VMs neither
from each other nor from this machine. Whoever holds the token can run processes as this user; that is its
purpose. The names and sizes of what is emulated can be guessed by other users of the machine from the process
list, as with any program.
"""

from __future__ import annotations

__all__ = ["EmulatorAddress", "ensure_running", "status", "stop"]

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multislice_nb.emulator.address import EmulatorAddress
    from multislice_nb.emulator.daemon import ensure_running, status, stop


def __getattr__(name: str) -> Any:
    if name == "EmulatorAddress":
        from multislice_nb.emulator import address

        return address.EmulatorAddress
    if name in __all__:
        from multislice_nb.emulator import daemon

        return getattr(daemon, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
