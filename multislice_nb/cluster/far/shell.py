"""The worker's side of shell commands, in the foreground of an SSH session and detached from it.

A detached command has a folder `~/.multislice_nb/commands/ID`: `command.json` says what it is, `stdout.log` and
`stderr.log` grow, and `end.json` appears when it has ended. A supervisor of its own sees that end.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    Request = dict[str, Any]

HOME = Path.home() / ".multislice_nb"
COMMANDS = HOME / "commands"
KEPT = 20
"""Detached commands that have ended and whose output is kept."""
GRACE = 5.0
"""Seconds between asking a command to end and killing it."""


def _environment(request: Request) -> dict[str, str]:
    """Ours, the user's environment file, and what this command was told, the last one counting."""
    values = dict(os.environ)
    folders = [HOME / "packages" / "bin", HOME / "venv" / "bin", Path.home() / ".local" / "bin"]
    ours = [str(folder) for folder in folders if folder.is_dir()]
    values["PATH"] = os.pathsep.join([*ours, values.get("PATH", os.defpath)])
    if (HOME / "packages").is_dir():
        values["PYTHONPATH"] = os.pathsep.join(
            filter(None, [str(HOME / "packages"), values.get("PYTHONPATH")])
        )
    with contextlib.suppress(FileNotFoundError):
        values.update(json.loads((HOME / "environment.json").read_text()))
    if request["distributed"]:
        stale = ("MEGASCALE_", "JAX_COORDINATOR", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
        for name in [name for name in values if name.startswith(stale)]:
            del values[name]
    values.update(request["environment"])
    return values


def _popen(request: Request, **streams: Any) -> subprocess.Popen[bytes]:
    """Start the command in a session of its own, so that its end can reach all that it starts."""
    folder = Path.home() / Path(request["cwd"]).expanduser()
    return subprocess.Popen(
        ["bash", "-c", request["command"]],
        cwd=str(folder),
        env=_environment(request),
        start_new_session=True,
        **streams,
    )


def _signal(group: int, number: int) -> bool:
    """Signal a process group; False if there is none any more."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):  # macOS says the latter of a group of zombies
        return False
    return True


def _end_group(group: int, grace: float) -> None:
    """Ask a process group to end, and kill what is left of it."""
    limit = time.monotonic() + grace
    number = int(signal.SIGTERM)
    while _signal(group, number):
        if time.monotonic() > limit:
            _signal(group, signal.SIGKILL)
            return
        number = 0  # only look
        time.sleep(0.05)


def run(request: Request, stream: IO[bytes]) -> dict[str, Any]:
    """Run a command on this session's own streams, and end it when the session ends.

    Lines on standard input are orders: `INT` interrupts it, `TERM` ends it.
    """
    started = time.time()
    with tempfile.TemporaryFile() as given:  # a file, for a pipe would have to be fed beside all else
        given.write(base64.b64decode(request["stdin"]))
        given.seek(0)
        child = _popen(request, stdin=given)

    def obey() -> None:
        for line in stream:
            if line.strip() == b"INT":
                _signal(child.pid, signal.SIGINT)
            else:
                break
        # Also when the notebook is gone: what nobody waits for must not hold a TPU.
        _end_group(child.pid, GRACE)

    threading.Thread(target=obey, daemon=True).start()
    status = child.wait()
    return {"status": status, "started": started, "finished": time.time()}


def free_port(request: Request, _stream: IO[bytes]) -> int:
    """A port at this worker's address that nobody holds, from `first` upwards."""
    taken = OSError("no port was tried")
    for port in range(request["first"], request["first"] + 100):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((request["address"], port))
            except OSError as error:
                taken = error
            else:
                return port
    raise taken


def start(request: Request, _stream: IO[bytes]) -> dict[str, Any]:
    """Start a command that outlives this session, after copying a folder for it where one is named."""
    _forget_old()
    folder = COMMANDS / request["id"]
    folder.mkdir(parents=True, mode=0o700)
    if request["folder"]:
        shutil.copytree(str(Path.home() / request["folder"]), str(folder / "files"), symlinks=True)
        request["cwd"] = str(folder / "files")
    # What keeps an emulator running on which there is nothing else to do.
    request["environment"]["MULTISLICE_NB_DETACHED"] = request["id"]
    told = {key: request[key] for key in ("id", "name", "command", "cwd")}
    (folder / "command.json").write_text(json.dumps(dict(told, started=time.time())))
    ready, write_end = os.pipe()
    if os.fork() == 0:
        os.close(ready)
        _supervise(request, folder, write_end)
    os.close(write_end)
    with os.fdopen(ready) as pipe:
        complaint = pipe.read()
    os.wait()
    if complaint:
        raise OSError(complaint)
    return {}


def _supervise(request: Request, folder: Path, ready: int) -> None:
    """In a forked process: fork again, run the command, and write down how it ended. Never returns."""
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        for name, descriptor in (("stdout.log", 1), ("stderr.log", 2)):
            log = os.open(str(folder / name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(log, descriptor)
            os.close(log)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        try:
            child = _popen(request, stdin=subprocess.DEVNULL, preexec_fn=_default_signals)
        except OSError as error:
            os.write(ready, str(error).encode())
            shutil.rmtree(str(folder))
            os._exit(0)
        _write(folder / "pid.json", {"pid": child.pid, "born": _born(child.pid)})
        os.close(ready)
        _write(folder / "end.json", {"status": child.wait(), "finished": time.time()})
    finally:
        os._exit(0)


def _default_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _write(path: Path, value: dict[str, Any]) -> None:
    """Write a file that appears whole or not at all."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(value))
    partial.replace(path)


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    return found


def _born(pid: int) -> str:
    """When a process started: a number that is used again has another birth."""
    shown = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], stdout=subprocess.PIPE, check=False)
    return shown.stdout.decode().strip()


def _alive(folder: Path) -> int:
    """The process group of a command that runs, else 0."""
    told = _read(folder / "pid.json")
    if not told or (folder / "end.json").exists():
        return 0
    pid: int = told["pid"]
    return pid if told["born"] == _born(pid) else 0


def _state(folder: Path) -> dict[str, Any]:
    state = _read(folder / "command.json")
    state.update(_read(folder / "end.json"))
    state["running"] = bool(_alive(folder))
    return state


def listing(_request: Request, _stream: IO[bytes]) -> list[dict[str, Any]]:
    """Every detached command of this worker, the oldest first."""
    folders = [path for path in COMMANDS.glob("*") if (path / "command.json").exists()]
    return sorted((_state(folder) for folder in folders), key=lambda state: float(state["started"]))


def _forget_old() -> None:
    ended = [folder for folder in COMMANDS.glob("*") if not _alive(folder)]
    for folder in sorted(ended, key=lambda path: path.stat().st_mtime)[:-KEPT]:
        shutil.rmtree(str(folder), ignore_errors=True)


def follow(request: Request, stream: IO[bytes]) -> dict[str, Any]:
    """Write what a command has printed and prints, each stream to its own, until it has ended.

    With `wait` false, only what there is now, of which the last `tail` bytes.
    """
    folder = COMMANDS / request["id"]
    if not (folder / "command.json").exists():
        raise FileNotFoundError("there is no command " + request["id"])
    gone = threading.Event()

    def watch() -> None:
        stream.read(1)  # any order means the same here, and so does the end of the session
        gone.set()

    if request["wait"]:
        threading.Thread(target=watch, daemon=True).start()
    logs = [_open(folder / name, request["tail"]) for name in ("stdout.log", "stderr.log")]
    with logs[0], logs[1]:
        while True:
            ended = not _alive(folder)
            for log, sink in ((logs[0], sys.stdout.buffer), (logs[1], sys.stderr.buffer)):
                shutil.copyfileobj(log, sink)
                sink.flush()
            if ended or gone.is_set() or not request["wait"]:
                break
            gone.wait(0.2)
    state = _state(folder)
    return {
        "status": state.get("status"),
        "started": state["started"],
        "finished": state.get("finished", time.time()),
        "running": state["running"],
    }


def _open(path: Path, tail: int) -> IO[bytes]:
    path.touch(mode=0o600)
    log = path.open("rb")
    log.seek(max(0, path.stat().st_size - tail) if tail else 0)
    return log


def stop(request: Request, _stream: IO[bytes]) -> dict[str, Any]:
    """End a command and all that it started."""
    folder = COMMANDS / request["id"]
    group = _alive(folder)
    if group:
        _end_group(group, request["grace"])
        limit = time.monotonic() + 5.0
        while not (folder / "end.json").exists() and time.monotonic() < limit:
            time.sleep(0.05)
    return _state(folder)


def forget(request: Request, _stream: IO[bytes]) -> dict[str, Any]:
    """Remove the output of a command that has ended."""
    folder = COMMANDS / request["id"]
    if _alive(folder):
        raise OSError("the command runs still")
    shutil.rmtree(str(folder), ignore_errors=True)
    return {}
