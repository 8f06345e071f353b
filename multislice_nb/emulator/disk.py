"""A disk without space, as far as a process of an ordinary user can be made to feel it.

A file size limit of nought makes each write to a file fail, with EFBIG instead of ENOSPC; Python and most
programs treat the two alike. Where the system cannot limit another process (macOS), only SFTP is affected.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterable

# In front of a new process's command: its writes fail, and do not kill it by a signal either.
FULL_DISK = ("bash", "-c", 'trap "" XFSZ; ulimit -S -f 0; exec "$@"', "bash")


def fill_disk(targets: Iterable[psutil.Process], *, full: bool) -> None:
    """Let the file writes of processes fail from now on, or succeed again."""
    if not hasattr(psutil.Process, "rlimit"):
        return
    for process in targets:
        with contextlib.suppress(psutil.Error):
            _, hard = process.rlimit(psutil.RLIMIT_FSIZE)
            process.rlimit(psutil.RLIMIT_FSIZE, (0 if full else hard, hard))
