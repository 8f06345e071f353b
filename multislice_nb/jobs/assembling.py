"""From the end of one attempt to the beginning of the next: waiting until the gang is complete."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from multislice_nb._ports import free_port
from multislice_nb.jobs import layout
from multislice_nb.jobs.distributed import FIRST_PORT
from multislice_nb.jobs.gang import decide
from multislice_nb.jobs.worker import log, place

if TYPE_CHECKING:
    from multislice_nb.jobs.gang import Attempt
    from multislice_nb.jobs.worker import Worker

__all__ = ["Assembly"]

MOST_RESETS = 2
"""Resets in a row that did not bring a silent worker back, after which the run has failed."""


class Assembly:
    """Waits with all the others for the next attempt.

    Args:
        worker: This worker.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._started = time.monotonic()
        self._looked_at_slices = 0.0
        self._not_before = 0.0
        self._judged = False

    def wait(self) -> Attempt | None:
        """The next attempt that this worker is a member of; None when the run has ended or the machine ends."""
        worker, gang = self._worker, self._worker.gang
        worker.beat.say(phase="waiting")
        while not worker.signals.terminated:
            try:
                names = gang.names()
                if layout.END in names:
                    return None
                found = self._formed(names)
                if found is not None:
                    return found
                self._lead(gang.latest(names))
                self._check_time()
            except OSError as error:
                log.warning("the store does not answer: %s", error)
            time.sleep(worker.poll)
        return None

    def _formed(self, names: set[str]) -> Attempt | None:
        """The running attempt if it is this boot's; one that counts on an earlier boot is stopped."""
        worker = self._worker
        number = worker.gang.latest(names)
        if number == 0 or layout.stop_key(number) in names:
            return None
        attempt = worker.gang.attempt(number)
        if attempt is None:
            return None
        if attempt.boots[worker.rank] == worker.boot:
            return attempt
        reason = f"{worker.place} was restarted"
        worker.gang.stop(number, "replaced", worker.rank, reason)
        log.info("attempt %d cannot go on: %s", number, reason)
        return None

    def _lead(self, last: int) -> None:
        """Do what the leader does, if it is this worker's turn."""
        worker, limits = self._worker, self._worker.job.limits
        for rank in range(worker.rank):
            worker.watch.look(rank)
            if worker.watch.silent(rank) < limits.lost_after * (1 + worker.rank / 10):
                return
        missing = self._missing()
        if missing:
            self._look_after(missing, last)
        elif worker.rank == 0:
            self._form(last)

    def _missing(self) -> list[int]:
        worker = self._worker
        missing = []
        self._boots = []
        for rank in range(worker.job.workers):
            beat = worker.watch.look(rank)
            self._boots.append(str(beat.get("boot", "")))
            waiting = beat.get("phase") == "waiting"
            if not waiting or not worker.watch.alive(rank, worker.job.limits.lost_after):
                missing.append(rank)
        return missing

    def _form(self, last: int) -> None:
        """Judge the last attempt, and form the next one or end the run."""
        worker, gang = self._worker, self._worker.gang
        if last and not self._judged:
            verdict = gang.judge(last, self._boots)
            decision = decide(worker.job.limits, gang.verdicts())
            log.info("attempt %d ended: %s, which counts as a %s", last, verdict["reason"], verdict["kind"])
            if decision.reason:
                gang.end("failed", decision.reason, attempt=last, rank=verdict["rank"])
                return
            self._not_before = time.monotonic() + decision.wait
            self._judged = True
        if time.monotonic() < self._not_before:
            return
        address = worker.machine.address
        gang.form(last + 1, f"{address}:{free_port(address, FIRST_PORT)}", self._boots)

    def _check_time(self) -> None:
        worker, limits = self._worker, self._worker.job.limits
        if worker.late:
            worker.gang.end("timed out", f"the time limit of {limits.time_limit:g} s is over")
        elif time.monotonic() - self._started > limits.repair_timeout:
            missing = self._missing()
            who = ", ".join(place(worker.job, rank) for rank in missing[:4]) or "a leader"
            reason = f"the gang was not complete within {limits.repair_timeout:g} s; missing: {who}"
            worker.gang.end("failed", reason)

    def _look_after(self, missing: list[int], last: int) -> None:
        """Where a worker is silent although its slice is READY, it hangs: have all of them reset."""
        worker, limits = self._worker, self._worker.job.limits
        silent = [rank for rank in missing if worker.watch.silent(rank) > limits.boot_timeout]
        if not silent or time.monotonic() - self._looked_at_slices < limits.lost_after:
            return
        self._looked_at_slices = time.monotonic()
        who = place(worker.job, silent[0])
        try:
            troubled = worker.own.troubled_nodes()
            if troubled:
                log.info("waiting for the repair of %s", troubled)
                return
            tried = worker.gang.resets(last)
            if len(tried) >= MOST_RESETS:
                worker.gang.end("failed", f"{who} stays silent, {len(tried)} resets notwithstanding")
                return
            key = layout.reset_key(last, len(tried) + 1)
            if worker.gang.store.create_json(
                key, {"time": time.time(), "rank": silent[0], "by": worker.rank}
            ):
                log.warning("%s is silent for %.0f s: resetting all slices", who, limits.boot_timeout)
                self._reset(key, who)
        except OSError as error:
            log.warning("could not see to %s: %s", who, error)

    def _reset(self, key: str, who: str) -> None:
        """Ask for the reset; one that failed is none, and does not count."""
        gang = self._worker.gang
        try:
            self._worker.own.reset()
        except PermissionError as error:
            gang.end("failed", f"{who} stays silent, and this job may not reset its slices: {error}")
        except OSError:
            gang.store.remove(key)
            raise
