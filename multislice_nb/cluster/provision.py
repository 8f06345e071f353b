"""Make the same Python environment on many workers: resolved once, checked by hash, done once.

The first worker that needs it resolves the requirements to a lock, which is kept on this machine, so that a
worker that comes later, as after a repair, gets the very same. uv itself is pinned with its hash.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
from typing import TYPE_CHECKING, Any

from multislice_nb import errors
from multislice_nb.cluster.errand import ErrandError, errand, errands
from multislice_nb.cluster.inventory import ranks_text
from multislice_nb.config import state_home

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from multislice_nb.cluster.inventory import Worker
    from multislice_nb.cluster.ssh import Connections

__all__ = ["UV", "add", "provision", "wanted"]

UV: dict[str, str] = {
    "uv": "0.13.9",
    # The wheels for Linux on x86-64 and on Arm, from the package index.
    "uv_lock": (
        "uv==0.13.9"
        " --hash=sha256:d7f459fe4fd247d830351c75686d3996ace3c6f3f728eb0e85a30b7ada0cef19"
        " --hash=sha256:5435c5ce14a56431208ca0996416d310f1598e8c2c8ba707688985a16bb82dbe\n"
    ),
}
"""The uv that workers get, and what its wheels hash to."""

DEADLINE = 1800.0
"""Seconds for an installation: a TPU VM downloads about a gigabyte for the first one."""

_FIX = (
    "The workers need the package index: give them external IPs or Cloud NAT, or name a mirror in "
    "UV_DEFAULT_INDEX with environment.set(...), then try again."
)
_CONFLICT = (
    "Ask for versions that go with each other and with what engines have, or allow others with upgrade."
)


def python_version() -> str:
    """The notebook's own minor version, for both sides pickle values for each other."""
    return f"{sys.version_info[0]}.{sys.version_info[1]}"


def wanted(requirements: Sequence[str]) -> str:
    """What stands for a set of requirements: equal for equal ones, on the same Python."""
    return _digest("\n".join([python_version(), *requirements]))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


async def provision(
    connections: Connections, workers: Sequence[Worker], requirements: Sequence[str]
) -> dict[int, bool]:
    """Make an environment with these requirements in `~/.multislice_nb/venv` on every worker.

    What is there already is left alone; what an earlier try left half done goes on.

    Args:
        connections: Open connections.
        workers: Whom to provide with it.
        requirements: As pip takes them.

    Returns:
        By rank, whether it had to be made.

    Raises:
        errors.StartError: It failed on a worker; says which, and what uv said.
    """
    stamp = wanted(requirements)
    request = UV | {"python": python_version()}
    kept = state_home() / "locks" / f"{stamp}.txt"
    lock = await asyncio.to_thread(_read, kept)
    if not lock:
        asked = request | {"requirements": "\n".join(requirements), "beside": False}
        lock = await _lock(connections, workers[0], asked)
        await asyncio.to_thread(_store, kept, lock)
    made = request | {"lock": lock, "digest": _digest(python_version() + lock), "wanted": stamp}
    answers = await errands(
        connections, dict.fromkeys(workers, made), "provision:environment", deadline=DEADLINE
    )
    _require(answers, f"Installing {', '.join(requirements)}")
    return {worker.rank: bool(answer["made"]) for worker, answer in answers.items()}


async def add(
    connections: Connections,
    pythons: Mapping[Worker, str],
    requirements: str,
    *,
    upgrade: bool,
) -> dict[int, list[str]]:
    """Add packages beside those that engines have, the same versions on every worker.

    Args:
        connections: Open connections.
        pythons: By worker, the Python that engines start with; empty for the one that would be found.
        requirements: Lines as in a requirements file.
        upgrade: Whether packages of the engines may come in another version.

    Returns:
        By rank, what was added, as `name==version`; nothing where all was there.

    Raises:
        errors.StartError: It failed on a worker; says which, and what uv said.
    """
    first = next(iter(pythons))
    asked = UV | {
        "requirements": requirements,
        "beside": True,
        "executable": pythons[first],
        "upgrade": upgrade,
    }
    lock = await _lock(connections, first, asked)
    requests = {worker: UV | {"lock": lock, "executable": python} for worker, python in pythons.items()}
    answers = await errands(connections, requests, "provision:packages", deadline=DEADLINE)
    _require(answers, "Adding packages")
    return {worker.rank: list(answer) for worker, answer in answers.items()}


async def _lock(connections: Connections, worker: Worker, request: Mapping[str, Any]) -> str:
    try:
        return str(await errand(connections, worker, "provision:lock", request, deadline=DEADLINE))
    except ErrandError as error:
        conflict = "No solution found" in str(error) or "could not be found" in str(error)
        raise errors.StartError(
            f"No versions fit the requirements on {worker}: {error}", fix=_CONFLICT if conflict else _FIX
        ) from error


def _require(answers: Mapping[Worker, Any], doing: str) -> None:
    failed = {worker: answer for worker, answer in answers.items() if isinstance(answer, Exception)}
    if failed:
        first = min(failed, key=lambda worker: worker.rank)
        who = ranks_text((worker.rank for worker in failed), total=len(answers))
        raise errors.StartError(f"{doing} failed on {who}; {first}: {failed[first]}", fix=_FIX) from failed[
            first
        ]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def _store(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
