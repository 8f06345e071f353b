"""One run of the job's command on this worker: started in a session of its own, ended with all it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from multislice_nb.cluster.oom import oom_kills

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Command", "Exit", "end_leftovers", "marked"]

_GROUP = "MULTISLICE_NB_COMMAND"


@dataclass(frozen=True, slots=True)
class Exit:
    """How a command ended.

    Attributes:
        code: Its exit status; minus the signal's number where a signal ended it.
        when: Seconds since the epoch.
        reason: In words.
        oom: Whether the kernel killed something on this machine for lack of memory meanwhile.
    """

    code: int
    when: float
    reason: str
    oom: bool = False

    @property
    def ok(self) -> bool:
        """Whether it did well."""
        return self.code == 0


class Command:
    """A running command.

    Args:
        command: What bash runs.
        folder: Where.
        environment: All of its environment.
        output: The file that stdout and stderr go to. It writes there itself: nothing stands between it and
            the disk that could slow it down.
    """

    def __init__(self, command: str, folder: Path, environment: Mapping[str, str], output: Path) -> None:
        self._kills = oom_kills()
        # Starts with the home folder, so that a later supervisor of this VM knows what an earlier one left.
        self._mark = f"{Path.home()}:{os.getpid()}.{time.monotonic_ns()}"
        output.parent.mkdir(parents=True, exist_ok=True)
        with output.open("ab", buffering=0) as file:
            self._process = subprocess.Popen(
                ["bash", "-c", command],
                cwd=folder,
                env={**environment, _GROUP: self._mark},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        # When memory runs out the command goes, and its supervisor stays to tell.
        with contextlib.suppress(OSError):
            Path(f"/proc/{self._process.pid}/oom_score_adj").write_text("500")

    @property
    def pid(self) -> int:
        """The process id of its shell, and of its process group."""
        return self._process.pid

    def poll(self) -> Exit | None:
        """How it ended, or None while it runs."""
        code = self._process.poll()
        if code is None:
            return None
        # Where the shell was not replaced by the command it reports a signal as 128 + its number.
        code = 128 - code if 128 < code <= 192 else code
        oom = oom_kills() > self._kills
        return Exit(code, time.time(), _reason(code, oom=oom), oom)

    def wait(self, timeout: float) -> Exit | None:
        """How it ended, or None where it still runs when the time is over."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout)
        return self.poll()

    def signal(self, number: int) -> None:
        """Send a signal to all of its processes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
        _send(marked(self._mark), number)

    def end(self, grace: float) -> Exit:
        """End it: TERM, the grace, then KILL; nothing of it is left.

        A shell may end at once where what it started is still saving its state.
        """
        if self.poll() is None:
            self.signal(signal.SIGTERM)
        self._wait_all(grace)
        self.signal(signal.SIGKILL)
        ended = self.wait(30.0)
        return ended or Exit(-9, time.time(), "it did not even end on SIGKILL")

    def _wait_all(self, seconds: float) -> None:
        limit = time.monotonic() + seconds
        while self.poll() is None or marked(self._mark):
            left = limit - time.monotonic()
            if left <= 0:
                return
            if self.wait(min(left, 0.2)) is not None:
                time.sleep(0.05)


def marked(prefix: str) -> list[int]:
    """Processes whose mark begins so, those that left their process group included; needs /proc."""
    wanted = f"{_GROUP}={prefix}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if any(part.startswith(wanted) for part in (entry / "environ").read_bytes().split(b"\0")):
                found.append(int(entry.name))
    return [pid for pid in found if pid != os.getpid()]


def end_leftovers() -> int:
    """End what a supervisor that died left running, as it holds chips and ports; says how many processes."""
    left = marked(f"{Path.home()}:")
    _send(left, signal.SIGKILL)
    return len(left)


def _send(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _reason(code: int, *, oom: bool) -> str:
    if code == 0:
        return "it ended well"
    short = "the kernel killed a process of this machine for lack of memory" if oom else ""
    if code > 0:
        known = {126: "the command cannot be run (exit status 126)", 127: "the command was not found"}
        reason = known.get(code, f"exit status {code}")
        return f"{reason}, after {short}" if short else reason
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    if code == -signal.SIGKILL:
        return f"killed by {name}: {short or 'out of memory is the usual reason'}"
    return f"killed by {name}"
