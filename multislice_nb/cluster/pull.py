"""One pull: a path of every worker into a folder for each on this machine."""

from __future__ import annotations

import asyncio
import os
import shutil
import tarfile
import tempfile
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

from multislice_nb import errors
from multislice_nb.cluster.errand import ErrandError, ended, opened
from multislice_nb.cluster.inventory import ranks_text
from multislice_nb.cluster.transfer import PullResult, Transfer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from multislice_nb.cluster.inventory import Worker
    from multislice_nb.cluster.ssh import Connections

__all__ = ["Pull"]

AT_ONCE = 8
"""Workers that send at the same time; more would only share the notebook's downlink."""

_CHUNK = 1 << 18


class Pull:
    """What each worker has under a path, brought here."""

    def __init__(
        self, connections: Connections, workers: Sequence[Worker], source: str, folder: Path
    ) -> None:
        self._connections = connections
        self._workers = workers
        self._source = source
        self._folder = folder
        self._received = 0
        self._files: dict[int, int] = {}
        self._skipped: dict[int, tuple[str, ...]] = {}
        self.changed = asyncio.Event()

    def look(self) -> Transfer:
        """How far it is."""
        return Transfer("receiving", self._received, 0, len(self._files), len(self._workers))

    async def run(self) -> PullResult:
        """All of it.

        Raises:
            errors.InvalidRequestError: The folder cannot be made.
            errors.ClusterError: Names the workers that could not send, and why the first could not.
        """
        began, limit = time.monotonic(), asyncio.Semaphore(AT_ONCE)
        try:
            await asyncio.to_thread(self._folder.mkdir, parents=True, exist_ok=True)
        except OSError as error:
            raise errors.InvalidRequestError(
                f"{self._folder} cannot be made: {error.strerror}.",
                fix="Name a folder that you may write to.",
            ) from error

        async def one(worker: Worker) -> None:
            async with limit:
                await self._from(worker)

        tasks = {worker: asyncio.create_task(one(worker)) for worker in self._workers}
        try:
            await asyncio.wait(tasks.values())
        finally:
            for task in tasks.values():
                task.cancel()
            ends = await asyncio.gather(*tasks.values(), return_exceptions=True)
        failed = {worker: end for worker, end in zip(tasks, ends, strict=True) if end is not None}
        if failed:
            raise self._refusal(failed)
        return PullResult(
            source=self._source,
            folder=self._folder,
            folders={worker.rank: self._target(worker) for worker in self._workers},
            files=dict(sorted(self._files.items())),
            size=self._received,
            seconds=time.monotonic() - began,
            skipped={rank: names for rank, names in sorted(self._skipped.items()) if names},
        )

    def _target(self, worker: Worker) -> Path:
        return self._folder / Path(worker.log_name).stem

    async def _from(self, worker: Worker) -> None:
        import asyncssh

        with tempfile.TemporaryFile(dir=self._folder) as spool:
            try:
                async with opened(self._connections, worker, "files:send", {"path": self._source}) as process:
                    process.stdin.write_eof()
                    while chunk := await process.stdout.read(_CHUNK):
                        spool.write(chunk)
                        self._received += len(chunk)
                        self.changed.set()
                    await ended(worker, process)
            except asyncssh.Error as error:
                raise errors.ConnectError(
                    f"The SSH connection to {worker} was lost: {error}", fix="Attach again."
                ) from error
            spool.seek(0)
            files, skipped = await asyncio.to_thread(_unpack, spool, self._target(worker))
        self._files[worker.rank], self._skipped[worker.rank] = files, skipped
        self.changed.set()

    def _refusal(self, failed: Mapping[Worker, BaseException]) -> errors.ClusterError:
        first = min(failed, key=lambda worker: worker.rank)
        cause = failed[first]
        told = f"{cause.name}: {cause}" if isinstance(cause, ErrandError) else str(cause)
        who = ranks_text((worker.rank for worker in failed), total=len(self._workers)).capitalize()
        kept = ranks_text(self._files)
        error = errors.ClusterError(
            f"{self._source} was not pulled from {who[0].lower() + who[1:]}; {first}: {told}",
            fix=f"What {kept} sent is in {self._folder}."
            if self._files
            else "Look at it there: %multislice sh ls.",
        )
        error.__cause__ = cause
        return error


def _unpack(spool: IO[bytes], target: Path) -> tuple[int, tuple[str, ...]]:
    """Unpack beside the target, then move each thing at its top into place.

    Returns:
        How many files there are, and what was left out because it would have landed elsewhere.
    """
    target.mkdir(exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=target))
    new, files, skipped = partial / "new", 0, []
    try:
        new.mkdir()
        with tarfile.open(fileobj=spool, mode="r|gz") as archive:
            for member in archive:
                try:
                    # What a worker sends may not leave its folder, by its name or through a link.
                    archive.extract(member, new, filter="data")
                except tarfile.FilterError:
                    skipped.append(member.name)
                else:
                    files += member.isfile() or member.islnk()
        for item in new.iterdir():
            _put(item, target / item.name, partial / "before")
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return files, tuple(skipped)


def _put(item: Path, target: Path, before: Path) -> None:
    """Move something into place, what was there before out of the way."""
    folders = [path.is_dir() and not path.is_symlink() for path in (item, target)]
    if any(folders) and os.path.lexists(target):
        target.rename(before)
    os.replace(item, target)  # noqa: PTH105 - one call for all kinds
    if folders[1]:
        shutil.rmtree(before)
    else:
        before.unlink(missing_ok=True)
