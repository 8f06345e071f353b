"""What tests ask of processes that are to end."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["gone"]


def gone(pids: Iterable[int], seconds: float = 10.0) -> bool:
    """Whether all these processes end, waiting for that. One that its parent has not asked for has ended too."""
    left = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):  # it may end between any two calls
            left.append(psutil.Process(pid))
    _, alive = psutil.wait_procs(left, timeout=seconds)
    return not any(map(_runs, alive))


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
