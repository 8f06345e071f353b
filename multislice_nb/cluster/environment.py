"""What the workers are like, and what they have: `cluster.environment`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from multislice_nb import errors
from multislice_nb._portal import sync
from multislice_nb.cluster.environment_report import (
    CleanResult,
    EnvironmentReport,
    Installed,
    Process,
    WorkerEnvironment,
)
from multislice_nb.cluster.errand import errands
from multislice_nb.cluster.inventory import ranks_text
from multislice_nb.cluster.provision import add
from multislice_nb.cluster.usage import UsageReport, look
from multislice_nb.cluster.variables import EARLY, check, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from multislice_nb.cluster.inventory import Worker
    from multislice_nb.cluster.ssh import Connections

__all__ = ["DEVICES", "LOCKS", "PORTS", "Environment"]

DEVICES = ("/dev/accel*", "/dev/vfio/[0-9]*")
"""Where TPU VMs have their TPUs: accel up to v4, vfio from v5e on."""

LOCKS = ("/tmp/libtpu_lockfile*",)  # noqa: S108 - libtpu's own choice
"""Lock files by which libtpu keeps a second process away."""

PORTS = (8476, 8482, 8080, 8471, 8431)
"""JAX's coordinator (8482 since JAX 0.8.1), megascale's, libtpu's between workers, and its metrics."""


class Environment:
    """The environment of the workers of one queued resource.

    Args:
        connections: Open connections.
        workers: All workers, in rank order.
        name: The queued resource's name.
        call: Runs an importable function on the gang, where one is attached.
        pythons: Tells, by rank, the Python that the gang's engines run in.
    """

    def __init__(
        self,
        connections: Connections,
        workers: Sequence[Worker],
        name: str,
        *,
        call: Callable[..., Any] | None = None,
        pythons: Callable[[], Mapping[int, str]] = dict,
    ) -> None:
        self._connections = connections
        self._workers = workers
        self._name = name
        self._call = call
        self._pythons = pythons
        self._usage: UsageReport | None = None
        self._places: dict[str, Any] = {
            "devices": list(DEVICES),
            "locks": list(LOCKS),
            "ports": list(PORTS),
        }

    def report(self) -> EnvironmentReport:
        """Who holds the TPUs, lock files and ports on each worker, what is installed, and how much room is left.

        Raises:
            errors.ClusterError: A worker could not say.
        """
        requests = {worker: self._places | {"address": worker.address} for worker in self._workers}
        answers = self._ask("holders:report", requests, "look at itself")
        found = (WorkerEnvironment.of(worker, answer) for worker, answer in answers.items())
        return EnvironmentReport(tuple(found), total=len(self._workers))

    def usage(self) -> UsageReport:
        """How much is used on each worker now: HBM and duty cycle by libtpu's own metrics, memory, processors.

        What runs there is not disturbed, and a worker that does not answer is named in the report. The share
        of the processors is that since the call before.
        """
        return sync(self.ausage)

    async def ausage(self) -> UsageReport:
        """`usage`, to be awaited on the background loop."""
        self._usage = await look(self._connections, self._workers, self._usage)
        return self._usage

    def clean(self, *, force: bool = False, grace: float = 5.0) -> CleanResult:
        """End our own processes that hold a TPU or libtpu's lock file, on all workers, and remove stale lock files.

        A process is asked to end, then killed; the lock file goes once the TPU is let go. The engines of the
        attached gang are left alone, and so are processes that are not ours, unless `force` says otherwise.

        Args:
            force: Whether processes of others, and of other users, are ended as well.
            grace: Seconds between asking a process to end and killing it.

        Raises:
            errors.ClusterError: A worker could not do it.
        """
        spare = f"/clusters/{self._name} " if self._call is not None else ""
        request = self._places | {"force": force, "grace": grace, "spare": spare}
        answers = self._ask("holders:clean", dict.fromkeys(self._workers, request), "clean up")
        told = {worker.rank: answer for worker, answer in answers.items()}
        return CleanResult(
            ended={rank: tuple(map(Process.of, answer["ended"])) for rank, answer in told.items()},
            spared={
                rank: tuple((Process.of(each), each["why"]) for each in answer["spared"])
                for rank, answer in told.items()
            },
            removed={rank: tuple(answer["removed"]) for rank, answer in told.items()},
            left={rank: tuple(map(Process.of, answer["left"])) for rank, answer in told.items()},
            total=len(self._workers),
        )

    def install(
        self, *packages: str, requirements: str | Path | None = None, upgrade: bool = False
    ) -> Installed:
        """Add packages on all workers, in the same versions, each checked by its hash.

        They lie beside what the engines come with and can be imported at once, by commands too. What is there
        already decides: a package that needs another JAX is refused, unless `upgrade` allows it; the gang
        then needs a restart.

        Args:
            packages: As `einops` or `flax==0.10.2`.
            requirements: A requirements file of this machine.
            upgrade: Whether packages that the engines have may come in another version.

        Raises:
            errors.InvalidRequestError: There is nothing to install, or a word is no package.
            errors.StartError: No versions fit, or a worker could not install them.
        """
        text = _requirements(packages, requirements)
        pythons = self._pythons()
        asked = {worker: pythons.get(worker.rank, "") for worker in self._workers}
        added = sync(add, self._connections, asked, text, upgrade=upgrade)
        if self._call is not None:
            self._call("importlib:invalidate_caches")
        return Installed({rank: tuple(pins) for rank, pins in added.items()}, total=len(self._workers))

    def variables(self) -> dict[int, dict[str, str]]:
        """By rank, the variables that were set for the engines and commands. Values may be secrets."""
        requests = {worker: {"variables": None} for worker in self._workers}
        return {
            worker.rank: dict(answer)
            for worker, answer in self._ask("provision:variables", requests, "read its variables").items()
        }

    def set(self, variables: Mapping[str, str] | str | Path) -> tuple[str, ...]:
        """Set variables for engines and commands on all workers, in place of those set before.

        They are kept there in a file that only their user may read. Running engines take them over at once.

        Args:
            variables: Names and values, or an environment file of this machine with `NAME=value` lines.

        Returns:
            Names that an engine reads only as it starts, and that want `restart` to take effect.

        Raises:
            errors.InvalidRequestError: The file cannot be read, or a name is none or is ours.
            errors.ClusterError: A worker could not keep them.
        """
        values = check(variables) if not isinstance(variables, str | Path) else parse(_text(Path(variables)))
        before = self.variables()
        requests = {worker: {"variables": values} for worker in self._workers}
        self._ask("provision:variables", requests, "keep its variables")
        removed = sorted({name for kept in before.values() for name in kept} - set(values))
        if self._call is None:
            return ()
        self._call("multislice_nb.cluster.variables:apply", values, removed)
        return tuple(name for name in sorted({*values, *removed}) if name.startswith(EARLY))

    def _ask(
        self, function: str, requests: Mapping[Worker, Mapping[str, Any]], purpose: str
    ) -> dict[Worker, Any]:
        answers = sync(errands, self._connections, requests, function)
        failed = {worker: answer for worker, answer in answers.items() if isinstance(answer, Exception)}
        if failed:
            first = min(failed, key=lambda worker: worker.rank)
            who = ranks_text((worker.rank for worker in failed), total=len(self._workers)).capitalize()
            raise errors.ClusterError(
                f"{who} could not {purpose}; {first}: {failed[first]}", fix="Look at that worker with SSH."
            ) from failed[first]
        return answers


def _requirements(packages: Sequence[str], file: str | Path | None) -> str:
    wrong = [name for name in packages if not name.strip() or name.startswith("-") or "\n" in name]
    if wrong or (not packages and file is None):
        raise errors.InvalidRequestError(
            f"{wrong[0]!r} is no package." if wrong else "There is nothing to install.",
            fix="Name packages as on the package index, or a requirements file.",
        )
    return "\n".join([*packages, _text(Path(file)) if file is not None else ""])


def _text(path: Path) -> str:
    try:
        return path.expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise errors.InvalidRequestError(
            f"{path} cannot be read: {error}.", fix="Name a text file of this machine."
        ) from error
