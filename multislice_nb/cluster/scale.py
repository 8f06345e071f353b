"""What the number of workers decides: open files, heartbeats, and how soon a size that cannot work is refused."""

from __future__ import annotations

from multislice_nb import _descriptors, errors

__all__ = ["CONTROLLER_FILES", "heartbeat_milliseconds", "require_descriptors"]

NOTEBOOK_FILES = 2
"""Files that a worker costs the notebook: its SSH connection, and its log."""

PROXY_FILES = 3
"""Files that a worker costs besides where a command leads to it: the pipes of that command."""

OTHER_FILES = 200
"""Files that a notebook's kernel has open besides, with some room: sockets to Jupyter, gRPC, forwarded ports."""

CONTROLLER_FILES = 2
"""Files that an engine costs the controller's process that has most of them, the one that listens to hearts."""


def require_descriptors(workers: int, *, proxied: bool = False) -> None:
    """Make sure that this process may open the files that a number of workers needs.

    Args:
        workers: How many.
        proxied: Whether a command of its own leads to each of them.

    Raises:
        errors.ConnectError: The system does not let it; nothing was connected to.
    """
    needed = OTHER_FILES + workers * (NOTEBOOK_FILES + (PROXY_FILES if proxied else 0))
    allowed = _descriptors.allow(needed)
    if allowed < needed:
        raise errors.ConnectError(
            f"{workers} workers need {needed} open files in this process, and the system allows {allowed}.",
            fix=f"Raise the hard limit, as with `ulimit -Hn {needed}` in the shell that starts Jupyter, "
            "or in /etc/security/limits.conf.",
        )


def heartbeat_milliseconds(workers: int) -> int:
    """Milliseconds between two heartbeats of a gang.

    An engine counts as registered at the second beat after it came, so a slow heart keeps `attach` waiting. Each
    answer costs the controller about 0.05 ms in Python; this keeps that below two hundredths of a core.
    """
    return max(500, 4 * workers)
