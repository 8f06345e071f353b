"""The worker's side of making a Python environment and adding packages to it.

Everything can be done again after it was cut short: what is complete carries a mark and is not touched, what is
not goes on from uv's cache. Every package is checked against the hash in the lock that the notebook sends.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    Request = dict[str, Any]

HOME = Path.home() / ".multislice_nb"
READY = "ready.json"


def _run(argv: list[str], text: str = "") -> str:
    """Run a program; what it complained about is the error's text."""
    values = dict(os.environ)
    with contextlib.suppress(FileNotFoundError):  # where a private index is named
        values.update(json.loads((HOME / "environment.json").read_text()))
    for name in ("VIRTUAL_ENV", "PYTHONHOME"):
        values.pop(name, None)
    done = subprocess.run(argv, input=text.encode(), capture_output=True, env=values, check=False)
    if done.returncode:
        complaint = (done.stderr or done.stdout).decode(errors="replace").strip()
        raise RuntimeError(complaint[-1200:] or f"exit status {done.returncode}")
    return done.stdout.decode(errors="replace")


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Keep two notebooks from making the same thing at the same time."""
    os.umask(0o077)
    HOME.mkdir(exist_ok=True)
    with (HOME / "provision.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _uv(request: Request) -> str:
    """The wanted version of uv, from the package index with its hash, once."""
    folder = HOME / ("uv-" + request["uv"])
    if not (folder / "bin" / "uv").exists():
        partial = folder.with_suffix(".partial")
        shutil.rmtree(str(partial), ignore_errors=True)
        python = shutil.which("python3") or sys.executable
        argv = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        argv += ["--only-binary", ":all:", "--require-hashes", "--target", str(partial), "-r", "/dev/stdin"]
        _run(argv, request["uv_lock"])
        shutil.rmtree(str(folder), ignore_errors=True)
        partial.rename(folder)
    return str(folder / "bin" / "uv")


def lock(request: Request, _stream: IO[bytes]) -> str:
    """Resolve requirements to versions with hashes, so that all workers get the very same."""
    with _alone():
        uv = _uv(request)
        argv = [uv, "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--generate-hashes"]
        if not request["beside"]:
            return _run([*argv, "--python-version", request["python"], "-"], request["requirements"])
        # What is there already decides: a package that is added must not bring another JAX.
        python = _python(request)
        frozen = _run([uv, "pip", "freeze", "--python", python])
        constraints = HOME / "constraints.txt"
        constraints.write_text(
            "\n".join(line for line in frozen.splitlines() if "==" in line and "@" not in line)
        )
        if not request["upgrade"]:
            argv += ["--constraints", str(constraints)]
        return _run([*argv, "--python", python, "-"], request["requirements"])


def _python(request: Request) -> str:
    return request["executable"] or sys.executable


def environment(request: Request, _stream: IO[bytes]) -> dict[str, Any]:
    """Make the environment of a lock, unless it is there, and point `~/.multislice_nb/venv` to it."""
    with _alone():
        folder, began = HOME / "venvs" / request["digest"], time.monotonic()
        made = not (folder / READY).exists()
        if made:
            uv = _uv(request)
            folder.mkdir(parents=True, exist_ok=True)
            _run([uv, "venv", "--quiet", "--allow-existing", "--python", request["python"], str(folder)])
            python, file = str(folder / "bin" / "python"), folder / "requirements.lock"
            file.write_text(request["lock"])
            _run([uv, "pip", "sync", "--quiet", "--require-hashes", "--python", python, str(file)])
            _run([uv, "pip", "check", "--quiet", "--python", python])
            _write(folder / READY, {"wanted": request["wanted"], "digest": request["digest"]})
        _point(folder)
        return {"made": made, "seconds": time.monotonic() - began}


def _write(path: Path, value: dict[str, Any]) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(value))
    partial.replace(path)


def _point(folder: Path) -> None:
    """Change over at once, and drop what has not been used by the last two."""
    link, fresh = HOME / "venv", HOME / "venv.partial"
    if link.is_dir() and not link.is_symlink():
        shutil.rmtree(str(link))
    if fresh.is_symlink():
        fresh.unlink()
    fresh.symlink_to(Path("venvs") / folder.name)
    fresh.replace(link)
    os.utime(str(folder))
    others = sorted((HOME / "venvs").iterdir(), key=lambda path: path.stat().st_mtime)
    for old in others[:-2]:
        shutil.rmtree(str(old), ignore_errors=True)


def packages(request: Request, _stream: IO[bytes]) -> list[str]:
    """Add the packages of a lock beside the engines' own, those that are not there in that version.

    Returns what was added, as `name==version`.
    """
    with _alone():
        uv, python, target = _uv(request), _python(request), HOME / "packages"
        program = "import sys; print(chr(10).join(sys.path))"
        there = _run([python, "-c", program]).splitlines()
        blocks = _blocks(request["lock"])
        missing = {pin: block for pin, block in blocks.items() if not _installed(pin, [str(target), *there])}
        if missing:
            file = HOME / "packages.lock"
            file.write_text("".join(missing.values()))
            argv = [uv, "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--python", python]
            _run([*argv, "--target", str(target), "-r", str(file)])
        return list(missing)


def _blocks(lock: str) -> dict[str, str]:
    """By `name==version`, the lines of a lock that belong to it."""
    blocks: dict[str, str] = {}
    pin = ""
    for line in lock.splitlines(True):
        match = re.match(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)", line)
        if match:
            pin = match.group(1) + "==" + match.group(2)
            blocks[pin] = ""
        if pin:
            blocks[pin] += line
    return blocks


def _installed(pin: str, path: list[str]) -> bool:
    name, _, version = pin.partition("==")
    for found in importlib.metadata.distributions(name=name, path=path):
        return bool(found.version == version)  # the first on the path is the one that is imported
    return False


def variables(request: Request, _stream: IO[bytes]) -> dict[str, Any]:
    """Keep variables for engines and commands, in place of those kept before; None only tells them."""
    path = HOME / "environment.json"
    if request["variables"] is None:
        try:
            found: dict[str, Any] = json.loads(path.read_text())
        except FileNotFoundError:
            return {}
        return found
    os.umask(0o077)
    HOME.mkdir(exist_ok=True)
    _write(path, request["variables"])
    return {}
