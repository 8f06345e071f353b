"""Starting, finding and stopping the emulator. Standard library only until there is something to start."""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multislice_nb.emulator.address import REAPER_LOCK, EmulatorAddress, emulator_home, private_folder
from multislice_nb.errors import EmulatorError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["EmulatorAddress", "call", "ensure_running", "is_running", "status", "stop"]

_POLL = 0.02
_LOG_TAIL = 2000
# The log of a run begins anew beyond this many bytes.
_LOG_LIMIT = 5_000_000
_STOP_DEADLINE = 30.0


def ensure_running(*, owner_pid: int | None = None, deadline: float = 20.0) -> EmulatorAddress:
    """The running emulator of this user, started if need be. Safe to call from many processes at once.

    Args:
        owner_pid: A process that needs it: the emulator does not idle out while that lives.
        deadline: Seconds to wait for a start, or for an answer of one that runs.

    Raises:
        EmulatorError: It did not start in time; the end of its log is in the message. Or it runs and does not
            answer: it is left alone, with what runs on it.
    """
    home = private_folder(emulator_home())
    limit = time.monotonic() + deadline
    while True:
        address = _answering(home, limit)
        if address is None:
            with _lock(home, limit):
                address = _answering(home, limit) or _start(home, limit)
        if owner_pid is None:
            return address
        try:
            call(address, "POST", "/emulator/v1/owners", {"pid": owner_pid})
        except EmulatorError:
            # It may have idled out just now; one that lives on has refused for a reason.
            if _living(home) is not None or time.monotonic() > limit:
                raise
        else:
            return address


def stop() -> bool:
    """Stop the emulator with all that runs on it, and wait until it is gone.

    Returns:
        Whether there was one.

    Raises:
        EmulatorError: It did not end.
    """
    home = emulator_home()
    if not home.exists():
        return False
    limit = time.monotonic() + _STOP_DEADLINE
    with _lock(home, limit):  # one that is just starting is let come up, and then stopped
        address = _living_or_cleaned(home, limit)
    if address is None:
        return False
    with contextlib.suppress(EmulatorError):  # one that does not answer is ended by a signal below
        call(address, "POST", "/emulator/v1/shutdown", {}, timeout=5.0)
    _wait_ended(address)
    return True


def is_running() -> bool:
    """Whether there is one, be it too slow to answer."""
    return _living(emulator_home()) is not None


def status() -> dict[str, Any] | None:
    """How the emulator is, or None where none runs.

    Raises:
        EmulatorError: It runs and does not answer.
    """
    address = _living(emulator_home())
    return call(address, "GET", "/emulator/v1/status") if address else None


def call(
    address: EmulatorAddress, method: str, path: str, body: object = None, *, timeout: float = 30.0
) -> dict[str, Any]:
    """Call the emulator's REST face.

    Raises:
        EmulatorError: It did not answer, or refused.
    """
    connection = http.client.HTTPConnection(address.host, address.port, timeout=timeout)
    headers = {"Authorization": f"Bearer {address.token}", "Content-Type": "application/json"}
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        answer = json.loads(response.read() or b"{}")
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise EmulatorError(
            f"The emulator at {address.target} did not answer {method} {path}: {error}.",
            fix="Stop and start it: python -m multislice_nb emulator stop.",
        ) from error
    finally:
        connection.close()
    if response.status >= 400:
        raise EmulatorError(
            f"The emulator refused it: {answer['error']['message']}",
            fix="See what runs on it: %multislice emulator status; and what it can let fail: %multislice emulator fault.",
        )
    return dict(answer)


def _same_process(address: EmulatorAddress) -> bool:
    """Whether the daemon's process id is still the daemon's."""
    import psutil

    try:
        process = psutil.Process(address.pid)
        return abs(process.create_time() - address.started) < 1.0 and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _living(home: Path) -> EmulatorAddress | None:
    """The emulator whose process is there, whether it answers or not."""
    address = EmulatorAddress.read(home)
    return address if address is not None and _same_process(address) else None


def _answering(home: Path, limit: float) -> EmulatorAddress | None:
    """The emulator once it answers, however slow it is; None where it is gone.

    Raises:
        EmulatorError: It is there and has not answered by the limit. It may only be slow, and what runs on it is
            not ours to end.
    """
    while (address := _living(home)) is not None:
        try:
            call(address, "GET", "/emulator/v1/status", timeout=max(1.0, limit - time.monotonic()))
        except EmulatorError as error:
            if time.monotonic() > limit:
                raise EmulatorError(
                    f"The emulator at {address.target} (process {address.pid}) runs and does not answer.",
                    fix="Try again in a while; or end it, with all that runs on it: "
                    "python -m multislice_nb emulator stop.",
                ) from error
            time.sleep(_POLL)
        else:
            return address
    return None


@contextlib.contextmanager
def _lock(home: Path, limit: float) -> Iterator[None]:
    """One start at a time."""
    descriptor = os.open(home / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > limit:
                    raise EmulatorError(
                        "Another process has been starting the emulator for too long.",
                        fix=f"Look into {home / 'daemon.log'}.",
                    ) from None
                time.sleep(_POLL)
        yield
    finally:
        os.close(descriptor)


def _start(home: Path, limit: float) -> EmulatorAddress:
    log = home / "daemon.log"
    reaper = _spawn(home, log)
    while time.monotonic() < limit:
        address = EmulatorAddress.read(home)
        if address is not None and address.reaper_pid == reaper.pid and _living(home) is not None:
            return address
        if reaper.poll() is not None:
            break
        time.sleep(_POLL)
    else:
        reaper.terminate()
    raise EmulatorError(
        f"The emulator did not start. The end of its log:\n{_tail(log)}",
        fix=f"The whole log is {log}.",
    )


def _spawn(home: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start the reaper, which starts the daemon; detached from this process, its terminal and its signals."""
    root = str(Path(__file__).resolve().parents[2])
    inherited = os.environ.get("PYTHONPATH")
    environment = {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{inherited}" if inherited else root}
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    if log.exists() and log.stat().st_size > _LOG_LIMIT:
        flags |= os.O_TRUNC
    descriptor = os.open(log, flags, 0o600)
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "multislice_nb.emulator.reaper", str(home)],
            cwd=home,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,
        )
    finally:
        os.close(descriptor)


def _wait_ended(address: EmulatorAddress) -> None:
    """Wait until the daemon and its reaper are gone; one that does not go is killed, and its reaper cleans up."""
    import psutil

    from multislice_nb.emulator import processes

    waiting = []
    for pid in (address.pid, address.reaper_pid):
        with contextlib.suppress(psutil.Error):
            if pid > 1:
                waiting.append(psutil.Process(pid))
    left = processes.wait_gone(waiting, _STOP_DEADLINE / 2)
    for process in left:
        if process.pid == address.pid and _same_process(address):
            with contextlib.suppress(psutil.Error):
                process.kill()
    left = processes.wait_gone(left, _STOP_DEADLINE / 2)
    psutil.wait_procs(waiting, timeout=0)  # reaps a reaper that this process started
    if left:
        raise _did_not_end(", ".join(str(process.pid) for process in left))


def _living_or_cleaned(home: Path, limit: float) -> EmulatorAddress | None:
    """The emulator; or None once none is there, nor the reaper of one that is starting or just ending."""
    try:
        descriptor = os.open(home / REAPER_LOCK, os.O_RDWR)
    except FileNotFoundError:
        return _living(home)
    try:
        while (address := _living(home)) is None:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return None
            if time.monotonic() > limit:
                raise _did_not_end(f"see who holds {home / REAPER_LOCK}")
            time.sleep(_POLL)
        return address
    finally:
        os.close(descriptor)


def _did_not_end(which: str) -> EmulatorError:
    return EmulatorError("The emulator did not end.", fix=f"End its processes yourself: {which}.")


def _tail(log: Path) -> str:
    try:
        return log.read_text(errors="replace")[-_LOG_TAIL:].strip() or "(empty)"
    except OSError:
        return "(none)"
