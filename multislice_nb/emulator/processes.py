"""Finding and ending the processes of an emulated VM, however far they wandered.

Engines daemonize themselves, so a process group is not enough. A process belongs to a VM when its
environment carries the VM's mark, when it works inside the VM's folder, or when it descends from one that
does.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

MARK = "MULTISLICE_NB_EMULATED_VM"
# In the environment of a command that was started on a worker to go on when nobody is connected any more.
DETACHED = "MULTISLICE_NB_DETACHED"


def _belongs(process: psutil.Process, marks: Sequence[str], folders: Sequence[str]) -> bool:
    try:
        mark = process.environ().get(MARK, "")
        if any(mark == m or mark.startswith(m + "/") for m in marks):
            return True
        where = process.cwd()
    except (psutil.Error, OSError):
        return False
    return any(where == folder or where.startswith(folder + os.sep) for folder in folders)


def find(marks: Sequence[str], folders: Sequence[Path] = ()) -> list[psutil.Process]:
    """The living processes of this user that belong to VMs.

    Args:
        marks: Marks of VMs, or prefixes of marks up to a slash.
        folders: The VMs' folders.
    """
    me, uid = os.getpid(), os.getuid()
    paths = [str(folder) for folder in folders]
    found: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        if process.pid == me:
            continue
        with contextlib.suppress(psutil.Error, OSError):
            if process.uids().real == uid and _belongs(process, marks, paths):
                found[process.pid] = process
                found.update((child.pid, child) for child in process.children(recursive=True))
    found.pop(me, None)
    return [process for process in found.values() if _alive(process)]


def any_detached(mark: str) -> bool:
    """Whether a detached command runs on a VM with this mark, or beginning of a mark."""

    def detached(process: psutil.Process) -> bool:
        try:
            return DETACHED in process.environ()
        except (psutil.Error, OSError):
            return False

    return any(map(detached, find([mark])))


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def end(processes: Iterable[psutil.Process], grace: float = 0.5) -> list[psutil.Process]:
    """End processes: TERM, a moment's grace, then KILL.

    Returns:
        Those that are still there.
    """
    targets = list(processes)
    for process in targets:
        with contextlib.suppress(psutil.Error):
            process.terminate()
    wait_gone(targets, grace)
    for process in targets:
        with contextlib.suppress(psutil.Error):
            if _alive(process):
                process.kill()
    return wait_gone(targets, 2.0)


def wait_gone(processes: Iterable[psutil.Process], timeout: float) -> list[psutil.Process]:
    """Wait for processes to end, and return those that have not.

    A zombie counts as gone: whoever started it reaps it in its own time.
    """
    deadline = time.monotonic() + timeout
    left = [process for process in processes if _alive(process)]
    while left and time.monotonic() < deadline:
        time.sleep(0.01)
        left = [process for process in left if _alive(process)]
    return left


def end_all(
    marks: Sequence[str], folders: Sequence[Path] = (), *, grace: float = 0.5, deadline: float = 10.0
) -> int:
    """End every process of the given VMs, those included that start while we look.

    Returns:
        How many were left when the deadline passed; 0 is the rule.
    """
    limit = time.monotonic() + deadline
    while (found := find(marks, folders)) and time.monotonic() < limit:
        end(found, grace)
        grace = 0.0
    return len(found)


def send(targets: Iterable[psutil.Process], number: int) -> None:
    """Send a signal to processes; those that are gone do not mind."""
    for process in targets:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)


def descendants() -> set[psutil.Process]:
    """This process's living descendants."""
    return {child for child in psutil.Process().children(recursive=True) if _alive(child)}
