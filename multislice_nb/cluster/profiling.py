"""Traces of a cell from all its workers into one folder, as xprof and TensorBoard expect them.

Each worker writes its trace under the name of its host, into a run named by its own clock. Here they become one
run with a file for each worker, so that the tools show them as one program on several hosts.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from multislice_nb import errors
from multislice_nb.cluster.pull import Pull
from multislice_nb.cluster.tracing import FOLDER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from multislice_nb.cluster.inventory import Worker
    from multislice_nb.cluster.ssh import Connections
    from multislice_nb.profiles import Profile

__all__ = ["DEFAULT", "fetch", "prepared"]

DEFAULT = "profiles"
"""Folder for profiles where none is named."""

_SUFFIXES = (".xplane.pb", ".trace.json.gz")
"""Of xprof, and of Perfetto."""

DEADLINE = 3600.0
"""Seconds that fetching all traces may take."""


def prepared(profile: bool | str | Path) -> Path | None:
    """The folder for a profile, made before anything runs; None where no profile is wanted.

    Raises:
        errors.InvalidRequestError: It cannot be made.
    """
    if profile is False:
        return None
    folder = Path(DEFAULT if profile is True else profile).expanduser().absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise errors.InvalidRequestError(
            f"{folder} cannot hold a profile: {error.strerror}.", fix="Name a folder that can be written."
        ) from error
    return folder


async def fetch(connections: Connections, workers: Sequence[Worker], record: str, folder: Path) -> Profile:
    """Bring the traces here and remove them there. What goes wrong is in the profile: the cell has run.

    Args:
        connections: Open connections.
        workers: Those that ran the cell.
        record: The folder of the cell's record, relative to the home folder.
        folder: The log folder that gets the run.
    """
    problems: list[str] = []
    run = ""
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".fetching-") as arrived:
            try:
                async with asyncio.timeout(DEADLINE):
                    await Pull(connections, workers, f"{record}/{FOLDER}", Path(arrived)).run()
            except errors.ClusterError as error:  # those that came are kept
                problems.append(error.what)
            run = await asyncio.to_thread(_arrange, Path(arrived), folder, workers)
        problems += await _remove(connections, workers, f"{record}/{FOLDER}")
    except (OSError, TimeoutError) as error:
        problems.append(
            f"The traces were not fetched: {error or 'it took too long'}. They are in ~/{record} there."
        )
    from multislice_nb.profiles.profile import read_run

    return await asyncio.to_thread(read_run, folder, run, tuple(problems))


def _arrange(arrived: Path, folder: Path, workers: Sequence[Worker]) -> str:
    """Make one run of what each worker has sent, and give its name."""
    from multislice_nb.profiles.profile import runs_folder

    first = dt.datetime.now().astimezone().strftime("%Y_%m_%d_%H_%M_%S")  # as jax.profiler names them
    root, run, again = runs_folder(folder), first, 1
    while (root / run).exists():
        again += 1
        run = f"{first}_{again}"
    (root / run).mkdir(parents=True)
    for worker in workers:
        name = Path(worker.log_name).stem
        for suffix in _SUFFIXES:
            for trace in (arrived / name / FOLDER).glob(f"plugins/profile/*/*{suffix}"):
                trace.replace(root / run / f"{name}{suffix}")
    return run


async def _remove(connections: Connections, workers: Sequence[Worker], path: str) -> list[str]:
    """Remove the traces on the workers that answer."""
    command = f"cd && rm -rf -- {shlex.quote(path)}"
    try:
        ended = await connections.run_all(
            {worker.rank: command for worker in workers if connections.is_open(worker.rank)}
        )
    except errors.ConnectError as error:
        return [f"Traces may stay at ~/{path}: {error.what}"]
    return [
        f"The trace stays at ~/{path} of {end.worker}: {end.stderr.strip()}"
        for end in ended.values()
        if end.exit_status
    ]
