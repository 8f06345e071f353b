"""Which workers a queued resource has, in rank order."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from multislice_nb import errors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from multislice_nb.cloud import NodeStatus, SshSettings

__all__ = ["Targets", "Worker", "ranks_text", "select", "workers_of"]

Targets: TypeAlias = "str | int | Iterable[int] | None"
"""Which ones: `0,2-3`, a number, numbers, or None for all."""


@dataclass(frozen=True, slots=True)
class Worker:
    """One TPU VM of a slice.

    Attributes:
        rank: JAX's process id: worker in slice + slice id * workers per slice.
        slice_id: Which slice of the queued resource, from 0.
        worker_id: Which worker of that slice, from 0.
        node_id: The slice's name in the Cloud TPU API.
        address: The address that the other workers reach it by.
        ssh_host: The address that the notebook reaches it by.
        ssh_port: The port of its SSH server.
    """

    rank: int
    slice_id: int
    worker_id: int
    node_id: str
    address: str
    ssh_host: str
    ssh_port: int = 22

    def __str__(self) -> str:
        return f"rank {self.rank} (slice {self.slice_id}, worker {self.worker_id})"

    @property
    def log_name(self) -> str:
        """The name of this worker's log file."""
        return f"slice_{self.slice_id:03d}_worker_{self.worker_id:03d}.log"


def workers_of(
    nodes: Sequence[NodeStatus], *, workers_per_slice: int, ssh: SshSettings
) -> tuple[Worker, ...]:
    """The workers of all slices, in rank order.

    Raises:
        errors.ConnectError: A slice is not READY or lists fewer workers than its type has, so that ranks
            would be wrong.
    """
    workers = []
    for node in nodes:
        if node.state != "READY":
            raise errors.ConnectError(
                f"Slice {node.slice_id} ({node.node_id}) is {node.state}, not READY.",
                fix="Attach with --recover, or recover=True, which waits until it is READY again.",
            )
        if len(node.endpoints) != workers_per_slice:
            raise errors.ConnectError(
                f"Slice {node.slice_id} ({node.node_id}) lists {len(node.endpoints)} workers; "
                f"{node.accelerator_type} has {workers_per_slice}.",
                fix="Wait until the Cloud TPU API lists all of them, then attach again.",
            )
        for worker_id, endpoint in enumerate(node.endpoints):
            external = endpoint.external_ip if ssh.use_external_ip else None
            workers.append(
                Worker(
                    rank=node.slice_id * workers_per_slice + worker_id,
                    slice_id=node.slice_id,
                    worker_id=worker_id,
                    node_id=node.node_id,
                    address=endpoint.ip_address,
                    ssh_host=external or endpoint.ip_address,
                    ssh_port=endpoint.port if ssh.port_from_endpoint else 22,
                )
            )
    return tuple(sorted(workers, key=lambda worker: worker.rank))


def ranks_text(ranks: Iterable[int], *, total: int | None = None) -> str:
    """Ranks in the fewest words, as in `all 16`, `rank 2` or `ranks 0-1, 3`."""
    ordered = sorted(set(ranks))
    if total is not None and len(ordered) == total > 1:
        return f"all {total}"
    runs: list[list[int]] = []
    for rank in ordered:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    text = ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs)
    return f"rank{'s' if len(ordered) != 1 else ''} {text}"


def select(
    workers: Sequence[Worker], *, ranks: Targets = None, slices: Targets = None, worker_ids: Targets = None
) -> list[int]:
    """The ranks that are meant: those that fit every condition.

    Args:
        workers: All workers.
        ranks: By rank.
        slices: By slice.
        worker_ids: By worker in slice, the same in every slice.

    Raises:
        errors.InvalidRequestError: A number is not one, or names none of the workers; or no worker fits all.
    """
    chosen = {worker.rank for worker in workers}
    for word, targets, attribute in (
        ("rank", ranks, "rank"),
        ("slice", slices, "slice_id"),
        ("worker", worker_ids, "worker_id"),
    ):
        if targets is None:
            continue
        key = operator.attrgetter(attribute)
        there: set[int] = {key(worker) for worker in workers}
        wanted = _numbers(word, targets)
        if not wanted or not wanted <= there:
            strange = ", ".join(map(str, sorted(wanted - there))) or "nothing"
            raise errors.InvalidRequestError(
                f"There is no {word} {strange}: {word}s are 0 to {max(there)}.",
                fix=f"Name {word}s as in 0,2-3, or leave them out for all.",
            )
        chosen &= {worker.rank for worker in workers if key(worker) in wanted}
    if not chosen:
        raise errors.InvalidRequestError(
            "No worker fits all of these ranks, slices and workers.",
            fix="Leave one of them out: each narrows what the others name.",
        )
    return sorted(chosen)


def _numbers(word: str, targets: str | int | Iterable[int]) -> set[int]:
    if not isinstance(targets, str):
        try:
            several = targets if isinstance(targets, Iterable) else (targets,)
            return {operator.index(number) for number in several}
        except TypeError as error:
            raise errors.InvalidRequestError(
                f"{targets!r} does not name {word}s.", fix=f"Name {word}s by whole numbers, as in [0, 2, 3]."
            ) from error
    numbers: set[int] = set()
    for part in targets.split(","):
        match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        if match is None or (match[2] and int(match[2]) < int(match[1])):
            raise errors.InvalidRequestError(
                f"{targets!r} does not name {word}s.", fix=f"Write {word}s as in 0,2-3."
            )
        numbers |= set(range(int(match[1]), int(match[2] or match[1]) + 1))
    return numbers
