"""The end of a run on a worker: everything is uploaded, then the queued resource is deleted.

Deleting is every worker's duty. They take turns so that one call is the rule, and whichever hang or die, the
next one's turn comes.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from multislice_nb.jobs import layout
from multislice_nb.jobs.worker import log, patiently

if TYPE_CHECKING:
    from collections.abc import Callable

    from multislice_nb.jobs.worker import Worker

__all__ = ["finish"]

_TURN, _LONGEST_TURN = 5.0, 120.0


def finish(worker: Worker, flush: Callable[[], object]) -> None:
    """Upload what is left, wait for the others to do the same, and delete the queued resource.

    Args:
        worker: This worker.
        flush: Ships what this supervisor has logged, which is lost with the machine.
    """
    limit = time.monotonic() + worker.job.limits.final_grace
    worker.beat.say(phase="ending")
    _until_done("uploading the results", worker.upload_results, limit)
    final = {"rank": worker.rank, "time": time.time()}
    _until_done(
        "saying so", lambda: worker.gang.store.write_json(layout.final_key(worker.rank), final), limit
    )
    worker.beat.say(phase="ended")
    _await_others(worker, limit)
    turn = time.monotonic() + min(worker.rank * _TURN, _LONGEST_TURN)
    while time.monotonic() < turn and not worker.signals.terminated:
        time.sleep(0.1)
    while not worker.signals.terminated:
        try:
            if worker.own.state() not in {"", "DELETING"}:
                log.info("deleting %s", worker.own.name)
                flush()
                worker.own.delete()
        except OSError as error:
            log.warning("%s could not be deleted: %s", worker.own.name, error)
        time.sleep(_TURN)


def _await_others(worker: Worker, limit: float) -> None:
    """Wait until every worker has uploaded all of its own, or there is no time left for it."""
    while time.monotonic() < limit and not worker.signals.terminated:
        try:
            if len(worker.gang.store.list("finals")) >= worker.job.workers:
                return
            missing = [rank for rank in range(worker.job.workers) if not _alive(worker, rank)]
            if missing and len(worker.gang.store.list("finals")) + len(missing) >= worker.job.workers:
                log.warning("ranks %s are lost and have nothing more to say", missing)
                return
        except OSError as error:
            log.warning("the store does not answer: %s", error)
        time.sleep(worker.poll)


def _alive(worker: Worker, rank: int) -> bool:
    if rank == worker.rank:
        return True
    worker.watch.look(rank)
    return worker.watch.silent(rank) < worker.job.limits.lost_after


def _until_done(doing: str, work: Callable[[], None], limit: float) -> None:
    """Do something that may fail for a while; the end comes all the same."""
    try:
        patiently(doing, work, limit)
    except OSError as error:
        log.warning("%s failed for good: %s", doing, error)
