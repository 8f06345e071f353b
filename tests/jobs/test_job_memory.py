"""Memory runs out: by the kernel's own hand where this machine lets us have a control group, and by a limit."""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from multislice_nb.jobs.command import Command, Exit
from multislice_nb.jobs.submitting import emulator_limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from multislice_nb import jobs

MOST = 64 << 20
# More than that, and every page of it touched.
GREEDY = f"{sys.executable} -c 'b\"x\" * 10**9'"
KILLED = "the kernel killed a process of this machine for lack of memory"


@contextlib.contextmanager
def control_group() -> Iterator[Path]:
    """A control group of Linux with little memory.

    Raises:
        OSError: This machine has none for us.
    """
    root = Path("/sys/fs/cgroup")
    old = (root / "memory").is_dir()
    if not old and "memory" not in (root / "cgroup.subtree_control").read_text().split():
        raise OSError("memory is not shared out by control groups")
    group = (root / "memory" if old else root) / f"multislice-nb-test-{secrets.token_hex(6)}"
    group.mkdir()
    try:
        (group / ("memory.limit_in_bytes" if old else "memory.max")).write_text(str(MOST))
        swap, most = ("memory.memsw.limit_in_bytes", MOST) if old else ("memory.swap.max", 0)
        if (group / swap).exists():
            (group / swap).write_text(str(most))
        yield group
    finally:
        limit = time.monotonic() + 30
        while (group / "cgroup.procs").read_text() and time.monotonic() < limit:
            time.sleep(0.05)
        group.rmdir()


@pytest.fixture
def join() -> Iterator[str]:
    """A shell command after which the shell and what it starts have little memory."""
    with contextlib.ExitStack() as stack:
        try:
            group = stack.enter_context(control_group())
        except OSError as error:
            pytest.skip(f"no control group can be made here: {error}")
        yield f"echo $$ > {shlex.quote(str(group / 'cgroup.procs'))}"


def ended(command: str, folder: Path) -> Exit:
    """How a command ends."""
    found = Command(command, folder, os.environ, folder / "log").wait(60.0)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("command", "code", "reason"),
    [
        (f"exec {GREEDY}", -9, f"killed by SIGKILL: {KILLED}"),
        (f"{GREEDY}; exit $?", -9, f"killed by SIGKILL: {KILLED}"),
        (f"{GREEDY} || exit 3", 3, f"exit status 3, after {KILLED}"),
    ],
)
def test_what_the_kernel_kills_says_so(
    join: str, tmp_path: Path, command: str, code: int, reason: str
) -> None:
    """The command itself, what its shell started, and a part whose loss it answers with a status of its own."""
    found = ended(f"{join}; {command}", tmp_path)
    assert (found.code, found.oom, found.reason) == (code, True, reason)


def test_memory_that_runs_out_names_the_worker_and_the_cause(
    join: str, submit: Callable[..., jobs.Job], look: Any
) -> None:
    """One worker is killed by the kernel; the other, in the next attempt, is refused more memory."""
    killed = f'[ "$MULTISLICE_NB_ATTEMPT$MULTISLICE_NB_RANK" = 11 ] && {{ {join}; exec {GREEDY}; }}'
    refused = (
        f'[ "$MULTISLICE_NB_ATTEMPT$MULTISLICE_NB_RANK" = 20 ] && {{ ulimit -v 200000; exec {GREEDY}; }}'
    )
    limits = replace(emulator_limits(), max_restarts=1)
    job = submit("memory", f"{killed}; {refused}; exec sleep 1000", limits=limits)
    status = look.done(job, "failed")
    assert [attempt.reason for attempt in status.attempts] == [
        f"rank 1 (slice 1, worker 0): killed by SIGKILL: {KILLED}",
        "rank 0 (slice 0, worker 0): exit status 1: MemoryError",
    ]
    assert status.reason.endswith("rank 0 (slice 0, worker 0): exit status 1: MemoryError")
