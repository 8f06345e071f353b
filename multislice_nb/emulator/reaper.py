"""The process above the daemon, whose one job is that nothing outlives it.

On Linux it is a subreaper: whatever an emulated VM started, however it detached itself, becomes this process's
child when its parent ends. So when the daemon ends, for any reason, this one ends all the rest and removes what
is on disk. Elsewhere the mark in the environment of each process does that.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from multislice_nb.emulator.address import REAPER_LOCK

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_DEADLINE = 15.0
# macOS allows 103 bytes for the path of a unix socket; the sockets' own names are short.
_LONGEST_FOLDER = 85


def _prctl(option: int, argument: int) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        return bool(libc.prctl(option, argument, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def end_with_parent() -> None:
    """Get SIGTERM when the parent process ends (Linux)."""
    parent = os.getppid()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it ended just before
        os.kill(os.getpid(), signal.SIGTERM)


def _clean_up(emulator_id: str, folders: list[Path]) -> None:
    from multislice_nb.emulator import processes

    deadline = time.monotonic() + _DEADLINE
    while time.monotonic() < deadline:
        children = processes.descendants()
        marked = processes.find([emulator_id])
        if not children and not marked:
            break
        processes.end({*children, *marked}, grace=0.3)
        _reap()
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _watch(daemon: int) -> None:
    """Reap whatever ends until the daemon does."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, 0)[0] != daemon:
            pass


def main(home: Path) -> None:
    """Start the daemon, outlive it, and clean up."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    # Held to the end: the one before may still be cleaning up the same folders.
    lock = os.open(home / REAPER_LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    emulator_id = secrets.token_hex(8)
    vms = home / "vms"
    for left in (vms, home / "run"):  # by a machine that lost its power
        shutil.rmtree(left, ignore_errors=True)
    scratch = _scratch(home)
    arguments = [str(home), emulator_id, str(scratch)]
    daemon = subprocess.Popen([sys.executable, "-m", "multislice_nb.emulator.serve", *arguments])

    def pass_on(number: int, frame: object) -> None:  # noqa: ARG001 - the signature of a handler
        with contextlib.suppress(ProcessLookupError):
            os.kill(daemon.pid, number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, pass_on)
    try:
        _watch(daemon.pid)
    finally:
        _clean_up(emulator_id, [scratch, vms])
        _forget_address(home, daemon.pid)


def _scratch(home: Path) -> Path:
    """A folder for unix sockets, whose paths may have about a hundred characters."""
    wanted = home / "run"
    if len(os.fsencode(wanted)) <= _LONGEST_FOLDER:
        wanted.mkdir(mode=0o700)
        return wanted
    named = Path(tempfile.mkdtemp(prefix="multislice_nb-"))
    if len(os.fsencode(named)) <= _LONGEST_FOLDER:
        return named
    named.rmdir()
    return Path(tempfile.mkdtemp(prefix="multislice_nb-", dir="/tmp"))


def _forget_address(home: Path, daemon: int) -> None:
    from multislice_nb.emulator.address import EmulatorAddress, address_file

    address = EmulatorAddress.read(home)
    if address is not None and address.pid == daemon:
        address_file(home).unlink(missing_ok=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
