"""The host keys of one queued resource's workers, in a file of its own."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from multislice_nb.cluster.inventory import Worker

__all__ = ["known_hosts_line", "write_known_hosts"]


def known_hosts_line(worker: Worker, key: str) -> str:
    """A known-hosts entry for a worker; `key` is `ssh-ed25519 AAAA...`, or the base64 part alone."""
    host = f"[{worker.ssh_host}]:{worker.ssh_port}" if worker.ssh_port != 22 else worker.ssh_host
    return f"{host} {key if ' ' in key else f'ssh-ed25519 {key}'}\n"


def write_known_hosts(path: Path, workers: Sequence[Worker], host_keys: Mapping[int, str]) -> dict[int, str]:
    """Store the host keys that are known: those given, and those of earlier connections to the rest.

    Returns:
        All that are known now, by rank.
    """
    kept = path.read_text().splitlines() if path.exists() else []
    earlier = dict(line.split(" ", 1) for line in kept if " " in line)
    keys = dict(host_keys)
    for worker in workers:
        name = known_hosts_line(worker, "").split(" ", 1)[0]
        if worker.rank not in keys and name in earlier:
            keys[worker.rank] = earlier[name]
    text = "".join(known_hosts_line(w, keys[w.rank]) for w in workers if keys.get(w.rank))
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    partial.replace(path)
    return keys
