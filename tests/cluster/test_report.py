"""What a user reads of how a cell ended."""

from __future__ import annotations

from multislice_nb.cluster.inventory import Worker
from multislice_nb.cluster.report import with_endings, with_gone
from multislice_nb.cluster.result import CellResult, RemoteError, WorkerResult


def test_a_peers_error_is_told_once() -> None:
    """What a collective says of a lost peer stays as it was first told, however much is found out of the loss."""
    workers = [Worker(rank, 0, rank, "node", "10.0.0.1", "10.0.0.1", 22) for rank in range(2)]
    lost = RemoteError(workers[0], "WorkerLost", "its process ended", time=100.0)
    peer = RemoteError(workers[1], "JaxRuntimeError", "connection closed", time=100.5)
    result = CellResult(tuple(WorkerResult(error.worker, error=error) for error in (lost, peer)), total=2)
    result = with_gone(with_endings(result, {0: "100.0 killed by SIGKILL"}), {0: "node demo is PREEMPTED"})
    told = result.errors[1]
    assert told is not None
    assert (told.secondary, told.evalue) == (True, "JaxRuntimeError: connection closed")
