"""Files to all workers and back: `cluster.files`."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multislice_nb import errors
from multislice_nb.cluster.driven import driven, watched
from multislice_nb.cluster.errand import ErrandError, errands
from multislice_nb.cluster.inventory import Targets, ranks_text, select
from multislice_nb.cluster.pull import Pull
from multislice_nb.cluster.spread import Spread
from multislice_nb.cluster.transfer import PullResult, PushResult, Transfer
from multislice_nb.cluster.tree import Entry, Tree, bundle, scan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from multislice_nb.cluster.inventory import Worker
    from multislice_nb.cluster.ssh import Connections

__all__ = ["Files"]

DEADLINE = 3600.0
"""Seconds that a single transfer may take."""


class Files:
    """Files of the workers of one queued resource.

    Args:
        connections: Open connections.
        workers: All workers, in rank order.
    """

    def __init__(self, connections: Connections, workers: Sequence[Worker]) -> None:
        self._connections = connections
        self._workers = workers

    def push(
        self,
        source: str | Path,
        destination: str | None = None,
        *,
        ranks: Targets = None,
        delete: bool = False,
        gitignore: bool = True,
        on_update: Callable[[Transfer], None] | None = None,
    ) -> PushResult:
        """Bring a folder or a file to all workers; what they have already is not sent.

        Nothing at the destination changes before everything has arrived on every worker and was checked. A
        destination that is not there yet appears at once; in one that is, each file is replaced at once.
        Other files there stay, unless `delete` says otherwise.

        Args:
            source: On this machine.
            destination: What it becomes on the workers, relative to the home folder there; with `/` at its
                end, the folder that it goes into. The source's own name if left out.
            ranks: A subset of workers.
            delete: Whether files that the source does not have are removed from the destination.
            gitignore: Whether what .gitignore files exclude stays here. `.git` and caches always stay.
            on_update: Called in this thread with the transfer so far, at most five times a second.

        Raises:
            errors.InvalidRequestError: The source cannot be read, or the destination is none.
            errors.ClusterError: A worker could not take it; on all of them the destination is as it was.
        """
        chosen = self._chosen(ranks)
        path = Path(source)
        where = _destination(path, destination)
        push = _Push(self._connections, chosen, where, delete=delete)
        return driven(
            lambda: watched(push.run(path, gitignore=gitignore), push.look, changed=push.changed), on_update
        )

    def pull(
        self,
        source: str,
        folder: str | Path = ".",
        *,
        ranks: Targets = None,
        on_update: Callable[[Transfer], None] | None = None,
    ) -> PullResult:
        """Bring a file, a folder or what a pattern matches from all workers, into one folder for each.

        The folders are called `slice_000_worker_000` and so on. What is pulled appears there whole or not at
        all, and takes the place of what an earlier pull brought under its name. What a pattern matches keeps its
        path below the folder before the first wildcard: `runs/*/loss.txt` brings `1/loss.txt` and `2/loss.txt`.

        Args:
            source: A path or a pattern, relative to the home folder of the workers.
            folder: The folder on this machine that gets the workers' folders.
            ranks: A subset of workers.
            on_update: Called in this thread with the transfer so far, at most five times a second.

        Raises:
            errors.InvalidRequestError: There is no path, or the folder cannot be made.
            errors.ClusterError: It is not there on a worker, or could not be read or stored; names all such
                workers. What the others sent is kept.
        """
        if not source.strip():
            raise errors.InvalidRequestError("A pull needs a path.", fix="Name a path on the workers.")
        pull = Pull(self._connections, self._chosen(ranks), source, Path(folder).expanduser().absolute())
        return driven(lambda: watched(pull.run(), pull.look, changed=pull.changed), on_update)

    def _chosen(self, ranks: Targets) -> list[Worker]:
        wanted = set(select(self._workers, ranks=ranks))
        return [worker for worker in self._workers if worker.rank in wanted]


def _destination(source: Path, destination: str | None) -> str:
    # As it is called here: a link keeps its own name, and `.` is the folder's.
    name = os.path.basename(os.path.abspath(source.expanduser()))  # noqa: PTH100, PTH119 - pathlib keeps `..`, or follows links
    if destination is None or destination in {"", ".", "~", "./", "~/"}:
        destination = name
    elif destination.endswith("/"):
        destination += name
    if not destination or ".." in Path(destination).parts or destination == "/":
        raise errors.InvalidRequestError(
            f"{destination!r} is no destination on a worker.",
            fix="Name a path there, relative to the home folder or absolute, without `..`.",
        )
    return destination


class _Push:
    """One push."""

    def __init__(
        self, connections: Connections, workers: Sequence[Worker], destination: str, *, delete: bool
    ) -> None:
        self._connections = connections
        self._workers = workers
        self._request = {"id": secrets.token_hex(8), "destination": destination}
        self._delete = delete
        self._doing = "reading"
        self._spread: Spread | None = None
        self._total = 0
        self._needing = 0
        self.changed = asyncio.Event()

    def look(self) -> Transfer:
        """How far it is."""
        everyone, spread = len(self._workers), self._spread
        if spread is None:
            return Transfer(self._doing, 0, 0, 0, everyone)
        done = everyone - self._needing + len(spread.arrived)
        return Transfer(self._doing, spread.sent, self._total, done, everyone)

    async def run(self, source: Path, *, gitignore: bool) -> PushResult:
        """All of it."""
        began = time.monotonic()
        tree = await asyncio.to_thread(scan, source, gitignore=gitignore)
        self._do("comparing")
        surveys = await self._survey(tree)
        missing = {worker: [tree.entries[i] for i in told["missing"]] for worker, told in surveys.items()}
        extra = {worker: told["extra"] for worker, told in surveys.items()}
        touched = [worker for worker in self._workers if missing[worker] or extra[worker]]
        try:
            await self._bring(tree, missing)
            await self._each("files:unpack", touched, missing, extra, "unpack it")
            self._do("moving into place")
            await self._each("files:commit", touched, missing, extra, "put it into place")
        except BaseException:
            await asyncio.shield(self._discard())
            raise
        spread, where = self._spread, self._request["destination"]
        return PushResult(
            source=tree.source,
            destination=where if Path(where).is_absolute() or where.startswith("~") else f"~/{where}",
            files=len(tree.files),
            size=tree.size,
            sent={worker.rank: sum(e.kind == "f" for e in missing[worker]) for worker in self._workers},
            removed={worker.rank: tuple(extra[worker]) for worker in self._workers},
            bundle_bytes=self._total,
            uplink_bytes=spread.sent if spread else 0,
            direct=tuple(spread.direct) if spread else (),
            skipped=tree.skipped,
            digest=tree.digest,
            seconds=time.monotonic() - began,
        )

    def _do(self, step: str) -> None:
        self._doing = step
        self.changed.set()

    async def _survey(self, tree: Tree) -> dict[Worker, dict[str, Any]]:
        entries = [entry.as_list() for entry in tree.entries]
        request = self._request | {"entries": entries, "delete": self._delete}
        answers = await errands(
            self._connections, dict.fromkeys(self._workers, request), "files:survey", deadline=DEADLINE
        )
        self._require(answers, "be compared")
        return answers

    async def _bring(self, tree: Tree, missing: Mapping[Worker, Sequence[Entry]]) -> None:
        """Send each content that anybody lacks to all that lack any."""
        wanted = {
            worker: {e.content for e in entries if e.kind == "f"} for worker, entries in missing.items()
        }
        needing = [worker for worker in self._workers if wanted[worker]]
        if not needing:
            return
        # Those that lack most come first, for they are given what they can pass on.
        count = Counter({worker: len(wanted[worker]) for worker in needing})
        self._do("packing")
        packed = await asyncio.to_thread(bundle, tree, set().union(*wanted.values()))
        try:
            self._total, self._needing = packed.size, len(needing)
            self._spread = Spread(
                self._connections, self._request["id"], packed, deadline=DEADLINE, step=self.changed.set
            )
            self._do("sending")
            failed = await self._spread.to([worker for worker, _ in count.most_common()])
        finally:
            packed.close()
        self._require(failed, "take it")

    async def _each(
        self,
        function: str,
        workers: Sequence[Worker],
        missing: Mapping[Worker, Sequence[Entry]],
        extra: Mapping[Worker, Sequence[str]],
        purpose: str,
    ) -> None:
        requests = {
            worker: self._request
            | {"entries": [entry.as_list() for entry in missing[worker]], "extra": extra[worker]}
            for worker in workers
        }
        self._require(await errands(self._connections, requests, function, deadline=DEADLINE), purpose)

    def _require(self, answers: Mapping[Worker, Any], purpose: str) -> None:
        failed = {worker: answer for worker, answer in answers.items() if isinstance(answer, Exception)}
        if not failed:
            return
        first = min(failed, key=lambda worker: worker.rank)
        cause = failed[first]
        told = f"{cause.name}: {cause}" if isinstance(cause, ErrandError) else str(cause)
        who = ranks_text((worker.rank for worker in failed), total=len(self._workers)).capitalize()
        raise errors.ClusterError(
            f"{self._request['destination']} was not pushed: {who} could not {purpose}; {first}: {told}",
            fix="Mend that and push again; what arrived whole is not sent twice."
            if purpose == "put it into place"
            else "Nothing was changed on any worker: mend that and push again.",
        ) from cause

    async def _discard(self) -> None:
        await errands(
            self._connections, dict.fromkeys(self._workers, self._request), "files:discard", deadline=20
        )
