"""The daemon starts once, recovers, idles out, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from multislice_nb import errors
from multislice_nb.emulator import daemon, processes
from multislice_nb.emulator.address import REAPER_LOCK, EmulatorAddress, address_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.emulator.emulated_tpu import PARENT, Emulated
else:
    from emulated_tpu import PARENT, Emulated


START = "from multislice_nb.emulator import daemon; print(daemon.ensure_running().pid)"


@pytest.fixture
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state folder of this test's own."""
    monkeypatch.setenv("MULTISLICE_NB_HOME", str(tmp_path))
    yield tmp_path / "emulator"
    daemon.stop()


def test_two_processes_that_start_it_at_once_get_the_same_one(own_home: Path) -> None:
    """A lock makes the second starter find the first one's daemon."""
    starters = [subprocess.Popen([sys.executable, "-c", START], stdout=subprocess.PIPE) for _ in range(4)]
    assert len({starter.communicate(timeout=60)[0] for starter in starters}) == 1


def test_a_daemon_that_does_not_answer_is_left_alone(own_home: Path) -> None:
    """Connecting to one that is stuck says so, ends nothing, and works again once it goes on."""
    address = daemon.ensure_running()
    stuck = psutil.Process(address.pid)
    stuck.suspend()
    try:
        with pytest.raises(errors.EmulatorError, match="runs and does not answer"):
            daemon.ensure_running(deadline=0.5)
        assert daemon.is_running()
    finally:
        stuck.resume()
    assert daemon.ensure_running() == address


def test_stopping_one_that_is_starting_or_that_another_process_started(own_home: Path) -> None:
    """stop() lets a start come up first, and does not wait for a starter that lives on to reap its child."""
    code = f"{START}; import sys; sys.stdout.flush(); sys.stdin.read()"
    starter = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        Emulated.until((own_home / REAPER_LOCK).exists)
        assert daemon.stop()
        assert not address_file(own_home).exists()
        assert starter.poll() is None
    finally:
        starter.communicate(timeout=60)
    assert starter.returncode == 0


def test_secrets_are_readable_by_their_user_alone(own_home: Path) -> None:
    """Token and private key are 0600 and their folders 0700."""
    address = daemon.ensure_running()
    for secret in (address_file(own_home), address.ssh_key, own_home / "daemon.log"):
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    for folder in (own_home, own_home / "ssh", own_home / "vms"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert address.token not in repr(address)
    assert address.token not in (own_home / "daemon.log").read_text()


def test_a_stale_address_is_not_believed(own_home: Path) -> None:
    """A daemon.json whose process id now belongs to another process does not stop a new start."""
    address = daemon.ensure_running()
    daemon.stop()
    stale = EmulatorAddress(**{**vars(address), "pid": os.getpid()})
    stale.write()
    assert daemon.status() is None
    assert daemon.ensure_running().pid not in {os.getpid(), address.pid}


def test_a_failed_start_shows_the_log(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says why the daemon did not start."""
    own_home.mkdir(mode=0o700)
    (own_home / "bin").write_text("in the way")
    with pytest.raises(errors.EmulatorError, match=r"FileExistsError|NotADirectoryError"):
        daemon.ensure_running()


def test_an_unused_daemon_ends_itself(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an owner, a call, a startup script and a detached command it ends, and takes its address file along."""
    monkeypatch.setenv("MULTISLICE_NB_EMULATOR_IDLE", "1")
    address = daemon.ensure_running()
    emulated = Emulated(address)
    script = "touch begun; until [ -e enough ]; do sleep 0.1; done"
    emulated.active("job", node={"metadata": {"startup-script": script}})
    worker = own_home / "vms/job/job-0/0/home"
    emulated.until((worker / "begun").exists)

    def go_on(seconds: float) -> None:
        until = _uptime(emulated) + seconds
        emulated.until(lambda: _uptime(emulated) > until)

    go_on(2.5)
    waiting = "until [ -e over ]; do sleep 0.1; done"
    emulated.ssh("job-0", f"{processes.DETACHED}=1 setsid bash -c '{waiting}' >/dev/null 2>&1 &")
    (worker / "enough").touch()
    go_on(2.5)
    (worker / "over").touch()
    psutil.wait_procs([p for p in (_process(address.pid), _process(address.reaper_pid)) if p], timeout=20)
    assert not address_file(own_home).exists()
    assert daemon.status() is None


def test_an_owner_keeps_it_alive_until_the_owner_is_killed(
    own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon notices that the kernel that owned it was killed, and ends."""
    monkeypatch.setenv("MULTISLICE_NB_EMULATOR_IDLE", "1")
    code = (
        "import os, time; from multislice_nb.emulator import daemon;"
        "print(daemon.ensure_running(owner_pid=os.getpid()).pid, flush=True); time.sleep(60)"
    )
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    running = psutil.Process(pid)
    with pytest.raises(psutil.TimeoutExpired):
        running.wait(timeout=2.5)
    owner.kill()
    owner.communicate()
    running.wait(timeout=20)


def test_killing_the_daemon_leaves_no_process_of_its_workers(own_home: Path) -> None:
    """After SIGKILL even a daemonized process that shed its environment is gone, and the next start is clean."""
    emulated = Emulated(daemon.ensure_running())
    emulated.active("kept", accelerator_type="v4-8")
    emulated.ssh("kept-0", "setsid sleep 301 >/dev/null 2>&1 & env -i setsid sleep 302 >/dev/null 2>&1 &")
    sleepers = emulated.until(lambda: _sleepers(("301", "302")))
    os.kill(emulated.address.pid, signal.SIGKILL)
    gone, alive = psutil.wait_procs(sleepers, timeout=10)
    assert len(gone) >= 2
    assert not alive
    again = Emulated(daemon.ensure_running())
    assert again.address.pid != emulated.address.pid
    assert again.rest("GET", f"/v2/{PARENT}/queuedResources").body == {}


def test_killing_the_reaper_ends_the_daemon_and_its_workers(own_home: Path) -> None:
    """The daemon does not outlive the process that cleans up after it."""
    if not sys.platform.startswith("linux"):
        pytest.skip("only Linux tells a process that its parent ended")
    emulated = Emulated(daemon.ensure_running())
    emulated.active("kept")
    emulated.ssh("kept-0", "setsid sleep 303 >/dev/null 2>&1 &")
    sleepers = emulated.until(lambda: _sleepers(("303",)))
    watched = [*sleepers, psutil.Process(emulated.address.pid)]
    os.kill(emulated.address.reaper_pid, signal.SIGKILL)
    assert not psutil.wait_procs(watched, timeout=15)[1]


def test_stopping_ends_every_process_and_removes_the_disks(own_home: Path) -> None:
    """After stop() no process carries the mark of a worker and no VM folder is left."""
    emulated = Emulated(daemon.ensure_running())
    emulated.active("kept", 2)
    emulated.ssh("kept-1", "setsid python3 -c 'import time; time.sleep(300)' >/dev/null 2>&1 &")
    mark = emulated.ssh("kept-1", f"echo ${processes.MARK}").stdout.decode().split("/")[0]
    assert processes.find([mark])
    assert daemon.stop()
    assert not processes.find([mark])
    assert not (own_home / "vms").exists()
    assert not daemon.stop()


def test_a_long_state_folder_works_and_leaves_no_folder_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the path is too long for unix sockets a temporary folder holds them, and goes at the end."""
    monkeypatch.setenv("MULTISLICE_NB_HOME", str(tmp_path / ("long" * 30)))
    with tempfile.TemporaryDirectory(dir="/tmp") as temporary:
        monkeypatch.setenv("TMPDIR", temporary)
        emulated = Emulated(daemon.ensure_running())
        assert len(list(Path(temporary).iterdir())) == 1
        assert emulated.rest("GET", f"/v2/{PARENT}/nodes").status == 200
        daemon.stop()
        assert not list(Path(temporary).iterdir())


def test_a_long_folder_for_temporary_files_works_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the user's folder for temporary files is as long, the system's holds the sockets."""
    temporary = tmp_path / ("temporary" * 12)
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setenv("MULTISLICE_NB_HOME", str(tmp_path / ("long" * 30)))
    emulated = Emulated(daemon.ensure_running())
    assert emulated.rest("GET", f"/v2/{PARENT}/nodes").status == 200
    daemon.stop()
    assert not list(temporary.iterdir())


def test_a_start_right_after_a_kill_is_not_cleaned_away(own_home: Path) -> None:
    """The reaper of a killed daemon and a new start do not get into each other's way."""
    first = Emulated(daemon.ensure_running())
    first.active("old", 2)
    first.ssh("old-0", "trap '' TERM; setsid sleep 309 >/dev/null 2>&1 &")
    os.kill(first.address.pid, signal.SIGKILL)
    second = Emulated(daemon.ensure_running())
    second.active("new", 2)
    assert second.ssh("new-1", "echo here").stdout == b"here\n"
    assert second.rest("GET", f"/v2/{PARENT}/nodes").status == 200
    assert not psutil.pid_exists(first.address.reaper_pid)


def test_the_state_survives_no_restart(own_home: Path) -> None:
    """daemon.json of a stopped emulator is gone, so that nobody waits for it."""
    daemon.ensure_running()
    assert json.loads(address_file(own_home).read_text())["host"] == "127.0.0.1"
    daemon.stop()
    assert not address_file(own_home).exists()


def _uptime(emulated: Emulated) -> float:
    """Seconds since the daemon's start; asking is no use of it."""
    return float(emulated.rest("GET", "/emulator/v1/status").body["uptimeSeconds"])


def _process(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.Error:
        return None


def _sleepers(seconds: tuple[str, ...]) -> list[psutil.Process]:
    found = [
        p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] in [["sleep", s] for s in seconds]
    ]
    return found if len(found) >= len(seconds) else []
