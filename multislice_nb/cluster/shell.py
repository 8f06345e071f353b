"""Shell commands on all workers at once: `cluster.shell`."""

from __future__ import annotations

import asyncio
import base64
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multislice_nb import errors
from multislice_nb._portal import sync
from multislice_nb.cluster.detached import Detached, listed
from multislice_nb.cluster.driven import driven, watched
from multislice_nb.cluster.errand import ErrandError, errand, errands
from multislice_nb.cluster.files import Files
from multislice_nb.cluster.formation import COORDINATOR_PORT
from multislice_nb.cluster.inventory import Targets, ranks_text, select
from multislice_nb.cluster.shell_run import ShellRun

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from multislice_nb.cluster.inventory import Worker
    from multislice_nb.cluster.journal import Journal
    from multislice_nb.cluster.progress import CellProgress
    from multislice_nb.cluster.shell_result import ShellResult
    from multislice_nb.cluster.ssh import Connections

__all__ = ["Shell"]

INTERRUPT_DEADLINE = 10.0
"""Seconds for workers to answer that they have started what is then stopped, since the notebook was interrupted."""


class Shell:
    """The shells of the workers of one queued resource.

    Commands run in bash, in the home folder, with the engines' Python first in PATH. Each finds who it is in
    MULTISLICE_NB_RANK, MULTISLICE_NB_SLICE_ID, MULTISLICE_NB_WORKER_ID and MULTISLICE_NB_NODE_ID.

    Args:
        connections: Open connections.
        workers: All workers, in rank order.
        journal: Where all that they print is kept on this machine.
    """

    def __init__(self, connections: Connections, workers: Sequence[Worker], journal: Journal) -> None:
        self._connections = connections
        self._workers = workers
        self._journal = journal

    def run(
        self,
        command: str,
        *,
        ranks: Targets = None,
        slices: Targets = None,
        workers: Targets = None,
        timeout: float | None = None,
        grace: float | None = None,
        check: bool = True,
        stdin: str | bytes = b"",
        cwd: str = "",
        environment: Mapping[str, str] | None = None,
        distributed: bool = False,
        output_directory: str | Path | None = None,
        on_update: Callable[[CellProgress], None] | None = None,
    ) -> ShellResult:
        """Run a command on every worker at once and wait for all of them.

        It is run once on each, whatever its exit status, and ends with this call: an interrupt here, a lost
        connection or the end of the notebook ends it there, with all that it started.

        Args:
            command: For bash; several lines are a script.
            ranks: A subset of workers.
            slices: Those of these slices.
            workers: Those with these ids in their slices.
            timeout: Seconds until it is stopped everywhere; None for no limit.
            grace: Seconds that it gets elsewhere once it has failed on one worker; None for no limit.
            check: Whether a failure on any worker raises.
            stdin: What it reads, on every worker the same.
            cwd: Where it runs, relative to the home folder.
            environment: Variables for this command.
            distributed: Whether it gets what `jax.distributed.initialize()` without arguments and several
                slices need: JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES, JAX_PROCESS_ID, MEGASCALE_* and the
                variables of Open MPI that JAX reads.
            output_directory: Also write what each worker printed to a file there, named by slice and worker.
            on_update: Called in this thread with the output so far, at most five times a second.

        Returns:
            Output and exit status of each worker.

        Raises:
            errors.WorkerError: It failed on a worker; shows the first failure in time, with all ranks.
            errors.CellTimeoutError: It ran past `timeout`.
            errors.InvalidRequestError: There is no such worker, or no command.
        """
        chosen = self._chosen(command, ranks, slices, workers)
        data = stdin.encode() if isinstance(stdin, str) else stdin
        common = {"command": command, "cwd": cwd, "stdin": base64.b64encode(data).decode()}
        variables = sync(self._variables, chosen, environment or {}, distributed=distributed)
        requests = {
            worker: common | {"distributed": distributed, "environment": variables[worker]}
            for worker in chosen
        }
        run = self._following(requests, "shell:run", command)
        result = driven(
            lambda: watched(run.run(timeout=timeout, grace=grace), run.look, changed=run.changed), on_update
        )
        if output_directory is not None:
            _write_outputs(Path(output_directory).expanduser(), result)
        if check:
            result.raise_for_error()
        return result

    def start(
        self,
        command: str,
        *,
        name: str | None = None,
        folder: str | Path | None = None,
        ranks: Targets = None,
        slices: Targets = None,
        workers: Targets = None,
        cwd: str = "",
        environment: Mapping[str, str] | None = None,
        distributed: bool = True,
    ) -> Detached:
        """Start a command on every worker that goes on whatever becomes of this notebook.

        Args:
            command: For bash; several lines are a script.
            name: What it is called in lists; the command's first words if left out.
            folder: A folder of this machine that is pushed, and copied for this command alone; the command
                runs in its copy. A later change here does not reach it.
            ranks: A subset of workers.
            slices: Those of these slices.
            workers: Those with these ids in their slices.
            cwd: Where it runs, relative to the home folder, if no `folder` is given.
            environment: Variables for this command.
            distributed: As for `run`, but true by default, for training is what is started so.

        Raises:
            errors.ClusterError: A worker could not start it; it was stopped on those that had.
            errors.InvalidRequestError: The folder cannot be read, or there is no such worker or command.
        """
        chosen = self._chosen(command, ranks, slices, workers)
        title = name or " ".join(command.split())[:40]
        pushed = ""
        if folder is not None:
            source = Path(folder).expanduser().absolute()
            pushed = f".multislice_nb/folders/{source.name}"
            ours = [worker.rank for worker in chosen]
            Files(self._connections, self._workers).push(source, pushed, ranks=ours, delete=True)
        return sync(
            self._start, chosen, command, title, pushed, cwd, environment or {}, distributed=distributed
        )

    def detached(self) -> list[Detached]:
        """All detached commands that the workers know, the oldest first; those of earlier notebooks too."""
        return sync(listed, self._connections, self._workers, self._journal)

    def find(self, name: str) -> Detached:
        """A detached command by its id or name; of several of one name, the newest.

        Raises:
            errors.InvalidRequestError: There is none.
        """
        found = [command for command in self.detached() if name in {command.id, command.name}]
        if not found:
            raise errors.InvalidRequestError(
                f"No worker knows a detached command {name!r}.",
                fix="See which there are: %multislice ps.",
            )
        return found[-1]

    def _chosen(self, command: str, ranks: Targets, slices: Targets, workers: Targets) -> list[Worker]:
        if not command.strip():
            raise errors.InvalidRequestError(
                "There is no command to run.", fix="Write one: %multislice sh hostname."
            )
        wanted = set(select(self._workers, ranks=ranks, slices=slices, worker_ids=workers))
        return [worker for worker in self._workers if worker.rank in wanted]

    def _following(self, requests: Mapping[Worker, Mapping[str, Any]], function: str, title: str) -> ShellRun:
        self._journal.mark([worker.rank for worker in requests], f"$ {title}")
        return ShellRun(
            self._connections, requests, function, total=len(self._workers), observe=self._journal.write
        )

    async def _start(
        self,
        chosen: Sequence[Worker],
        command: str,
        name: str,
        folder: str,
        cwd: str,
        environment: Mapping[str, str],
        *,
        distributed: bool,
    ) -> Detached:
        identity = secrets.token_hex(4)
        common = {"id": identity, "name": name, "command": command, "folder": folder, "cwd": cwd}
        variables = await self._variables(chosen, environment, distributed=distributed)
        requests = {
            worker: common | {"distributed": distributed, "environment": variables[worker]}
            for worker in chosen
        }
        started = Detached(
            identity, name, command, chosen, self._connections, len(self._workers), self._journal
        )
        starting = asyncio.ensure_future(errands(self._connections, requests, "shell:start"))
        try:
            answers = await asyncio.shield(starting)
        except asyncio.CancelledError:
            # Only what has started can be stopped, and a worker that is told to start does so.
            await asyncio.wait({starting}, timeout=INTERRUPT_DEADLINE)
            starting.cancel()
            await started.astop(grace=0.0)
            raise
        failed = {w: answer for w, answer in answers.items() if isinstance(answer, Exception)}
        if failed:
            await started.astop(grace=0.0)
            first = min(failed, key=lambda worker: worker.rank)
            raise errors.ClusterError(
                f"{ranks_text(w.rank for w in failed).capitalize()} could not start {name}; {first}: {failed[first]}",
                fix="Mend that and start it again; it was stopped on the others.",
            ) from failed[first]
        return started

    async def _variables(
        self, chosen: Sequence[Worker], environment: Mapping[str, str], *, distributed: bool
    ) -> dict[Worker, dict[str, str]]:
        """What each worker's command finds in its environment beside the worker's own."""
        gang = await self._gang(chosen) if distributed else {worker: {} for worker in chosen}
        return {
            worker: {
                "MULTISLICE_NB_RANK": str(worker.rank),
                "MULTISLICE_NB_SLICE_ID": str(worker.slice_id),
                "MULTISLICE_NB_WORKER_ID": str(worker.worker_id),
                "MULTISLICE_NB_NODE_ID": worker.node_id,
            }
            | gang[worker]
            | dict(environment)
            for worker in chosen
        }

    async def _gang(self, chosen: Sequence[Worker]) -> dict[Worker, dict[str, str]]:
        """What joins these workers in one jax.distributed, said anew at every start."""
        leader = chosen[0]
        try:
            port = await errand(
                self._connections,
                leader,
                "shell:free_port",
                {"address": leader.address, "first": COORDINATOR_PORT},
            )
        except ErrandError as error:
            raise errors.ClusterError(
                f"{leader} has no free port for the coordinator from {COORDINATOR_PORT} up: {error}",
                fix="See what holds them: %multislice environment.",
            ) from error
        slices = sorted({worker.slice_id for worker in chosen})
        values = {}
        for number, worker in enumerate(chosen):
            values[worker] = {
                "JAX_COORDINATOR_ADDRESS": f"{leader.address}:{port}",
                "JAX_COORDINATOR_BIND_ADDRESS": f"{leader.address}:{port}",
                "JAX_NUM_PROCESSES": str(len(chosen)),
                "JAX_PROCESS_ID": str(number),
                # JAX reads the last two from Open MPI's variables alone, and looks for those first, before
                # it asks the metadata server, which on some queued resources does not know the process id.
                "OMPI_MCA_orte_hnp_uri": f"0.0;tcp://{leader.address}:{port}",
                "OMPI_COMM_WORLD_SIZE": str(len(chosen)),
                "OMPI_COMM_WORLD_RANK": str(number),
                "OMPI_COMM_WORLD_LOCAL_RANK": "0",
            }
            if len(slices) > 1:
                values[worker] |= {
                    "MEGASCALE_NUM_SLICES": str(len(slices)),
                    "MEGASCALE_SLICE_ID": str(slices.index(worker.slice_id)),
                    "MEGASCALE_COORDINATOR_ADDRESS": leader.address,
                }
        return values


def _write_outputs(folder: Path, result: ShellResult) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for worker in result.workers:
        (folder / worker.worker.log_name).write_text(worker.stdout + worker.stderr, encoding="utf-8")
