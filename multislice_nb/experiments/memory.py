"""Running out of memory: recognising it, and seeing it coming on a machine that workers share."""

from __future__ import annotations

from pathlib import Path

_SIGNS = ("RESOURCE_EXHAUSTED", "MemoryError", "exceeds available HBM")
_CGROUP = Path("/sys/fs/cgroup")


def is_out_of_memory(error: BaseException | str) -> bool:
    """Whether an error, or the text of one, says that a device or the machine ran out of memory."""
    text = f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else error
    return any(sign in text for sign in _SIGNS)


def available_bytes() -> int:
    """Memory that processes of this machine, or of this container, may still take."""
    import psutil

    available = int(psutil.virtual_memory().available)
    try:
        limit, used, stat = (
            (_CGROUP / f"memory.{name}").read_text().strip() for name in ("max", "current", "stat")
        )
    except OSError:  # no container, or not Linux
        return available
    if limit == "max":
        return available
    # Files that were read count as used, and the kernel gives up those not in use before it refuses memory.
    cached = dict(line.split() for line in stat.splitlines()).get("inactive_file", "0")
    return max(0, min(available, int(limit) - int(used) + int(cached)))
