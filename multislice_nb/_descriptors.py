"""How many files and sockets this process may have open at a time."""

from __future__ import annotations

import resource

__all__ = ["allow"]


def allow(wanted: int) -> int:
    """Raise the limit to `wanted` where it is lower, as far as the system lets an ordinary user.

    Returns:
        How many files this process may have open now.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return max(soft, wanted)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (ValueError, OSError):  # macOS refuses what its kernel cannot give, whatever the hard limit says
        return soft
    return most
