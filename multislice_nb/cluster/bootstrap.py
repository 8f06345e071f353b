"""What a worker must have before an engine can start on it, found and mended on all workers at once.

A worker that has a fitting Python is left as it is. Otherwise an environment is made in
`~/.multislice_nb/venv` with uv, since TPU VM images come with a Python older than this package needs.
"""

from __future__ import annotations

import importlib.metadata
import json
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from multislice_nb import errors
from multislice_nb._bounded import gather
from multislice_nb.cluster.inventory import ranks_text
from multislice_nb.cluster.payload import payload
from multislice_nb.cluster.provision import provision, wanted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from multislice_nb.cluster.inventory import Worker
    from multislice_nb.cluster.ssh import Connections

__all__ = ["HOME", "Footing", "prepare", "requirements"]

HOME = ".multislice_nb"
"""Our folder in the home folder of every worker."""

UPLOADS = 16
"""Workers that our zip is sent to at a time, so that each gets its share of a slow uplink before the deadline."""

_VENV = f"{HOME}/venv"
_PROBE = """
import importlib.metadata as m, json, os, sys
def version(name):
    try: return m.version(name)
    except m.PackageNotFoundError: return None
lib = os.path.join(os.path.expanduser("~"), sys.argv[1])
try: stamp = json.load(open(os.path.join(sys.prefix, "ready.json")))["wanted"]
except (OSError, ValueError, KeyError): stamp = None
made = sys.prefix == os.path.join(os.path.expanduser("~"), sys.argv[2])
# Not through the link, which may come to lead elsewhere while an engine runs.
executable = os.path.join(os.path.realpath(sys.prefix), "bin", "python") if made else sys.executable
print(json.dumps({"executable": executable, "python": list(sys.version_info[:3]), "lib": os.path.exists(lib),
                  "made": made, "stamp": stamp,
                  "versions": {name: version(name) for name in ("jax", "ipyparallel", "ipykernel")}}))
"""


@dataclass(frozen=True, slots=True)
class Footing:
    """What a worker runs our code with: its Python, our zip relative to its home folder, and versions."""

    python: str
    library: str
    versions: Mapping[str, str | None]


def requirements(*, tpu: bool) -> list[str]:
    """What an engine needs, at the notebook's own versions where both sides must agree."""
    versions = {name: importlib.metadata.version(name) for name in ("jax", "ipyparallel", "ipykernel")}
    jax = f"jax[tpu]=={versions['jax']}" if tpu else f"jax=={versions['jax']}"
    return [jax, f"ipyparallel=={versions['ipyparallel']}", f"ipykernel=={versions['ipykernel']}"]


async def prepare(connections: Connections, workers: Sequence[Worker], *, tpu: bool) -> dict[int, Footing]:
    """Make sure that every worker can start an engine.

    Args:
        connections: Open connections.
        workers: Whom to prepare.
        tpu: Whether the workers have TPUs, and so need libtpu.

    Raises:
        errors.StartError: A worker has no fitting Python and none could be made; says which and why.
    """
    found = await _probe(connections, [worker.rank for worker in workers])
    stamp = wanted(requirements(tpu=tpu))
    unfit = [worker for worker in workers if not _fits(found[worker.rank], stamp)]
    if unfit:
        await provision(connections, unfit, requirements(tpu=tpu))
        found |= await _probe(connections, [worker.rank for worker in unfit])
        still = [worker.rank for worker in unfit if not _fits(found[worker.rank], stamp)]
        if still:
            raise errors.StartError(
                f"After installing, {ranks_text(still)} still lack what an engine needs: {found[still[0]]['versions']}.",
                fix=f"Remove ~/{_VENV} on those workers and attach again.",
            )
    library = f"{HOME}/lib/{payload().name}"
    await _ship(connections, [rank for rank, facts in found.items() if not facts["lib"]], library)
    return {rank: Footing(facts["executable"], library, facts["versions"]) for rank, facts in found.items()}


def _fits(facts: Mapping[str, Any], stamp: str) -> bool:
    """A Python of 3.11 or later, with JAX, and an ipyparallel that speaks our client's protocol.

    An environment of ours must be the one that this notebook would make; one that the user prepared is their own.
    """
    if facts["made"] and facts["stamp"] != stamp:
        return False
    ours = importlib.metadata.version("ipyparallel").split(".")[0]
    theirs = (facts["versions"]["ipyparallel"] or "0").split(".")[0]
    return facts["python"] >= [3, 11] and facts["versions"]["jax"] is not None and ours == theirs


async def _probe(connections: Connections, ranks: Sequence[int]) -> dict[int, dict[str, Any]]:
    argument = f"{shlex.quote(f'{HOME}/lib/{payload().name}')} {_VENV}"
    command = f'p="$HOME/{_VENV}/bin/python"; [ -x "$p" ] || p=python3; exec "$p" - {argument}'
    done = await connections.run_all(dict.fromkeys(ranks, command), stdin=_PROBE.encode(), deadline=60)
    found = {}
    for rank, end in done.items():
        try:
            found[rank] = json.loads(end.stdout.splitlines()[-1])
        except (ValueError, IndexError) as error:
            raise errors.StartError(
                f"{end.worker} has no working python3 (exit status {end.exit_status}): {end.stderr.strip()[-500:]}",
                fix="Choose the runtime version that belongs to the accelerator type; it comes with Python 3.",
            ) from error
    return found


async def _ship(connections: Connections, ranks: Sequence[int], library: str) -> None:
    """Write our zip where it is missing, under another name first, so that it is whole or not there."""
    if not ranks:
        return
    command = (
        f"set -e; cd; umask 077; mkdir -p {HOME}/lib; find {HOME}/lib -name '*.zip' -mtime +30 -delete; "
        f"cat > {shlex.quote(library)}.$$; mv {shlex.quote(library)}.$$ {shlex.quote(library)}"
    )
    content = payload().content
    stored = await gather(lambda rank: connections.run(rank, command, stdin=content), ranks, at_once=UPLOADS)
    for end in stored:
        if end.exit_status != 0:
            raise errors.StartError(
                f"{end.worker} could not store {library}: {end.stderr.strip()[-500:]}",
                fix="Free some disk space in its home folder and attach again.",
            )
