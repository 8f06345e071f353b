"""Whether this machine's kernel ended processes for lack of memory. Runs on the workers."""

from __future__ import annotations

from pathlib import Path

__all__ = ["oom_kills"]

VMSTAT = Path("/proc/vmstat")


def oom_kills() -> int:
    """How often the kernel killed for lack of memory since it started; 0 where it does not say."""
    try:
        for line in VMSTAT.read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    except OSError:
        return 0
    return 0
