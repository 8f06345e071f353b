"""The worker's side of looking at who holds the TPU, lock files and ports, and of ending what is ours.

Linux tells it under /proc. Processes of other users are looked into with sudo where that needs no password, as
on TPU VMs; where it does, how many could not be looked into is told.
"""

from __future__ import annotations

import contextlib
import glob
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    Request = dict[str, Any]

PROC = Path("/proc")
OURS = ("multislice_nb.cluster.engine",)
VARIABLE = b"MULTISLICE_NB_RANK="
EMULATED = b"MULTISLICE_NB_EMULATED_VM="


def _pids() -> list[int]:
    """The processes of this machine; of an emulated one, those that carry its mark."""
    pids = [int(path.name) for path in PROC.iterdir() if path.name.isdigit()] if PROC.is_dir() else []
    mark = os.environb.get(EMULATED[:-1])
    return pids if mark is None else [pid for pid in pids if EMULATED + mark in _environ(pid).split(b"\0")]


def _environ(pid: int) -> bytes:
    try:
        return (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return b""


def _descriptors(pid: int) -> Iterator[str] | None:
    """What a process has open; None where it may not be looked into."""
    folder = f"/proc/{pid}/fd"
    try:
        names = [path.name for path in Path(folder).iterdir()]
    except PermissionError:
        return None
    except OSError:  # it has ended
        return iter(())
    return _targets(folder, names)


def _targets(folder: str, names: list[str]) -> Iterator[str]:
    for name in names:
        with contextlib.suppress(OSError):
            yield os.readlink(folder + "/" + name)  # noqa: PTH115 - Path.readlink is of 3.9


def _open_files(wanted: set[str]) -> tuple[dict[str, set[int]], dict[str, set[int]], list[int]]:
    """By path and by socket, who has it open; and the processes that could not be looked into."""
    files: dict[str, set[int]] = {}
    sockets: dict[str, set[int]] = {}
    hidden = []
    for pid in _pids():
        found = _descriptors(pid)
        if found is None:
            hidden.append(pid)
            continue
        for target in found:
            if target in wanted:
                files.setdefault(target, set()).add(pid)
            elif target.startswith("socket:["):
                sockets.setdefault(target[8:-1], set()).add(pid)
    if hidden and _sudo():
        hidden = _open_for_others(hidden, wanted, files, sockets)
    return files, sockets, hidden


def _sudo() -> bool:
    return shutil.which("sudo") is not None and _shell(["sudo", "-n", "true"]) is not None


def _shell(argv: list[str]) -> str | None:
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False
    )
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None


def _open_for_others(
    hidden: list[int], wanted: set[str], files: dict[str, set[int]], sockets: dict[str, set[int]]
) -> list[int]:
    folders = [f"/proc/{pid}/fd" for pid in hidden]
    argv = ["sudo", "-n", "sh", "-c", 'find "$@" -type l -printf "%p %l\\n" 2>/dev/null; true', "sh"]
    shown = _shell(argv + folders)
    if shown is None:
        return hidden
    for line in shown.splitlines():
        path, _, target = line.partition(" ")
        pid = int(path.split("/")[2])
        if target in wanted:
            files.setdefault(target, set()).add(pid)
        elif target.startswith("socket:["):
            sockets.setdefault(target[8:-1], set()).add(pid)
    return []


def _process(pid: int) -> dict[str, Any]:
    """Who a process is."""
    command = user = ""
    with contextlib.suppress(OSError):
        command = (
            (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        )
        user = _user((PROC / str(pid)).stat().st_uid)
    age = _shell(["ps", "-o", "etimes=", "-p", str(pid)])
    return {
        "pid": pid,
        "user": user,
        "command": command[:300],
        "age": float(age.strip() or 0) if age else 0.0,
        "ours": any(word in command for word in OURS) or VARIABLE in _environ(pid),
    }


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _expand(patterns: list[str]) -> list[str]:
    return sorted({path for pattern in patterns for path in glob.glob(os.path.expanduser(pattern))})  # noqa: PTH111, PTH207 - they are patterns, and absolute


def _listening(ports: list[int], address: str) -> list[tuple[int, str]]:
    """Pairs of a port that is listened on where this worker is reached, and its socket."""
    found = []
    for name, size in (("tcp", 8), ("tcp6", 32)):
        try:
            lines = (PROC / "net" / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            host, _, port = words[1].partition(":")
            mine = set(host) == {"0"} or (size == 8 and _dotted(host) in {address, "127.0.0.1"})
            if words[3] == "0A" and int(port, 16) in ports and (mine or size == 32):
                found.append((int(port, 16), words[9]))
    return found


def _dotted(host: str) -> str:
    octets = bytes.fromhex(host)
    return ".".join(str(octet) for octet in (octets[::-1] if sys.byteorder == "little" else octets))


def report(request: Request, _stream: IO[bytes]) -> dict[str, Any]:
    """Who holds devices, lock files and ports, and how much room there is."""
    devices, locks = _expand(request["devices"]), _expand(request["locks"])
    files, sockets, hidden = _open_files(set(devices) | set(locks))
    holding: dict[int, list[str]] = {}
    for path in devices:
        for pid in files.get(path, ()):
            holding.setdefault(pid, []).append(path)
    ports = [
        {"port": port, "processes": [_process(pid) for pid in sorted(sockets.get(socket, ()))]}
        for port, socket in _listening(request["ports"], request["address"])
    ]
    # Emulated VMs share the machine: what is of no process of this one is not its port.
    if EMULATED[:-1] in os.environb:
        ports = [port for port in ports if port["processes"]]
    return {
        "devices": devices,
        "holders": [dict(_process(pid), devices=paths) for pid, paths in sorted(holding.items())],
        "locks": [{"path": path, "holders": sorted(files.get(path, ()))} for path in locks],
        "ports": ports,
        "hidden": len(hidden),
        "looked": PROC.is_dir(),
        "disk_free": shutil.disk_usage(str(Path.home())).free,
        "memory_available": _memory(),
        "python": _python(),
    }


def _memory() -> int:
    with contextlib.suppress(OSError):
        for line in (PROC / "meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 0


def _python() -> dict[str, Any]:
    """The Python that engines start with, and what is installed for it."""
    program = (
        "import importlib.metadata as m, json, sys\n"
        "def v(n):\n"
        "    try: return m.version(n)\n"
        "    except m.PackageNotFoundError: return None\n"
        "names = ('jax', 'jaxlib', 'libtpu', 'ipyparallel', 'ipykernel')\n"
        "print(json.dumps({'python': '.'.join(map(str, sys.version_info[:3])), **{n: v(n) for n in names}}))"
    )
    import json

    shown = _shell([sys.executable, "-c", program])
    found: dict[str, Any] = json.loads(shown) if shown else {}
    return found


def clean(request: Request, _stream: IO[bytes]) -> dict[str, Any]:
    """End processes that hold devices or lock files, wait until they have let go, then remove the locks.

    The order matters: a lock that is removed while its owner still lives lets two in at once. Only ours are
    ended, and not those of the gang in use, unless force is asked for.
    """
    devices, locks = _expand(request["devices"]), _expand(request["locks"])
    ended, spared = [], []
    files, _, _ = _open_files(set(devices) | set(locks))
    for pid in sorted(set().union(*files.values())):
        told = _process(pid)
        if request["spare"] and request["spare"] in _family(pid):
            spared.append(dict(told, why="of the gang in use"))
        elif told["ours"] or request["force"]:
            _end(pid, request["grace"], whole_group=bool(told["ours"]))
            ended.append(told)
        else:
            spared.append(dict(told, why="not ours"))
    files = _until_free(set(devices) | set(locks), {told["pid"] for told in spared})
    removed = []
    for path in locks:
        if not files.get(path):
            _unlink(path)
            removed.append(path)
    left = sorted({pid for path in devices for pid in files.get(path, ())} - {told["pid"] for told in spared})
    return {"ended": ended, "spared": spared, "removed": removed, "left": [_process(pid) for pid in left]}


def _family(pid: int) -> str:
    """The command lines of a process and of its group's first, by which a gang's engines are known."""
    try:
        first = os.getpgid(pid)
    except OSError:
        return ""
    return " ".join(_process(each)["command"] for each in (pid, first))


def _end(pid: int, grace: float, *, whole_group: bool) -> None:
    """Ask a process to end, of ours with all of its group, and kill what has not after the grace."""
    try:
        target = -os.getpgid(pid) if whole_group else pid
    except OSError:
        return
    _send(target, signal.SIGTERM)
    limit = time.monotonic() + grace
    while _exists(pid) and time.monotonic() < limit:
        time.sleep(0.05)
    if _exists(pid) or whole_group:
        _send(target, signal.SIGKILL)


def _send(target: int, number: int) -> None:
    try:
        os.kill(target, number)
    except ProcessLookupError:
        return
    except PermissionError:
        _shell(["sudo", "-n", "kill", "-" + str(int(number)), "--", str(target)])


def _exists(pid: int) -> bool:
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _until_free(paths: set[str], spared: set[int]) -> dict[str, set[int]]:
    """Who still has them open, once those that were ended have closed them, or after some seconds."""
    limit = time.monotonic() + 10.0
    while True:
        files, _, _ = _open_files(paths)
        if not set().union(*files.values()) - spared or time.monotonic() > limit:
            return files
        time.sleep(0.1)


def _unlink(path: str) -> None:
    try:
        Path(path).unlink()
    except FileNotFoundError:  # somebody was faster
        return
    except PermissionError:
        if _shell(["sudo", "-n", "rm", "-f", "--", path]) is None:
            raise
