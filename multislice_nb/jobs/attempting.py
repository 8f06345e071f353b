"""One attempt on this worker: the command from its start to its end, whoever ends it."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Any

from multislice_nb.jobs import layout
from multislice_nb.jobs.command import Command, Exit
from multislice_nb.jobs.distributed import PREEMPTED_EXIT, environment
from multislice_nb.jobs.machine import preempted
from multislice_nb.jobs.shipping import Shipper
from multislice_nb.jobs.worker import log, place

if TYPE_CHECKING:
    from multislice_nb.jobs.gang import Attempt
    from multislice_nb.jobs.worker import Worker

__all__ = ["Attempting"]

_ABORT_GRACE = 5.0


class Attempting:
    """Runs the command and watches over it.

    Args:
        worker: This worker.
        attempt: The gang.
    """

    def __init__(self, worker: Worker, attempt: Attempt) -> None:
        self._worker = worker
        self._attempt = attempt
        self._limits = worker.job.limits
        self._by_itself = False
        self._asked = time.monotonic()
        # Each watches the one before it, in a ring, and all watch the leader: whoever is lost is missed.
        before = (worker.rank - 1) % worker.job.workers
        self._watched = sorted({0, before} - {worker.rank})

    def run(self) -> None:
        """Run the command until the attempt has ended on this worker."""
        worker, number = self._worker, self._attempt.number
        log.info("attempt %d: coordinator %s", number, self._attempt.coordinator)
        worker.beat.say(phase="running", attempt=number)
        output = worker.folder / "logs" / f"{number:04d}.log"
        command = Command(worker.job.command, worker.folder / "code", self._environment(), output)
        folder = layout.log_folder(worker.rank, number)
        interval = max(0.5, self._limits.heartbeat)
        shipper = Shipper(output, worker.gang.store, folder, interval, worker.masks)
        ended: Exit | None = None
        try:
            ended = self._follow(command, shipper)
        finally:
            last = command.end(self._limits.term_grace if worker.signals.terminated else 0.0)
            complete = shipper.close(60.0)
            self._report(ended or last, shipper, complete=complete)

    def _environment(self) -> dict[str, str]:
        worker = self._worker
        made = environment(
            worker.job,
            worker.machine,
            rank=worker.rank,
            attempt=self._attempt.number,
            coordinator=self._attempt.coordinator,
            base=worker.environment,
        )
        return {**made, **worker.job.env}

    def _follow(self, command: Command, shipper: Shipper) -> Exit:
        """Wait until the attempt has ended, here and everywhere."""
        own: Exit | None = None
        told = False
        while True:
            if own is None:
                own = command.wait(self._worker.poll)
            else:
                time.sleep(self._worker.poll)
            try:
                if own is not None and not told:
                    self._ended_by_itself(own, shipper)
                    told = True
                reason = self._must_end(shipper, done=own is not None)
            except OSError as error:
                reason = self._cut_off(error)
            if reason:
                log.info("attempt %d ends here: %s", self._attempt.number, reason)
                return own or self._end(command)

    def _ended_by_itself(self, own: Exit, shipper: Shipper) -> None:
        worker, number = self._worker, self._attempt.number
        self._by_itself = True
        log.info("the command ended: %s", own.reason)
        # Its last words must not wait for anybody.
        worker.beat.say(phase="ended", code=own.code)
        if own.ok:
            worker.gang.left(number, worker.rank, self._document(own, shipper))
            return
        cause = "preemption" if own.code == PREEMPTED_EXIT else "failure"
        shipper.look()
        said = f": {shipper.first_error[1]}" if shipper.first_error else ""
        reason = f"{worker.place}: {own.reason}{said}"
        if cause == "failure" and preempted():
            cause, reason = "preemption", f"{worker.place} was told that its slice is taken away"
        elif cause == "preemption":
            reason = f"{worker.place} saved its state on the notice of a preemption"
        worker.gang.stop(number, cause, worker.rank, reason, code=own.code, command_ended=own.when)

    def _must_end(self, shipper: Shipper, *, done: bool) -> str:
        """Why the attempt must end here, or nothing."""
        worker, gang, number = self._worker, self._worker.gang, self._attempt.number
        if worker.signals.terminated or self._noticed():
            return self._notice()
        names = gang.names()
        if layout.END in names:
            return "the run has ended"
        if layout.stop_key(number) in names:
            stop = gang.store.read_json(layout.stop_key(number)) or {}
            return str(stop.get("reason", "another worker stopped it"))
        lost = next(filter(None, map(self._lost, self._watched)), "")
        return lost or self._declare(shipper, done=done)

    def _declare(self, shipper: Shipper, *, done: bool) -> str:
        """Find out whether the run has ended, and say so."""
        worker, gang, number = self._worker, self._worker.gang, self._attempt.number
        if worker.late:
            reason = f"the time limit of {self._limits.time_limit:g} s is over"
            gang.end("timed out", reason, attempt=number)
            return reason
        if worker.rank > 0:
            if self._limits.stall_timeout is not None:
                worker.beat.say(silent=round(shipper.silent, 1))
            return ""
        if done and gang.all_left_well(number):
            reason = f"the command ended well on all {worker.job.workers} workers"
            gang.end("succeeded", reason, attempt=number)
            return reason
        return self._stall(shipper)

    def _noticed(self) -> bool:
        """Whether the machine was told of a preemption; asked as often as this worker gives a sign of life."""
        if time.monotonic() - self._asked < self._limits.heartbeat:
            return False
        self._asked = time.monotonic()
        return preempted()

    def _notice(self) -> str:
        worker, number = self._worker, self._attempt.number
        taken = preempted()
        reason = (
            f"{worker.place} was told that its slice is taken away"
            if taken
            else f"{worker.place} is shut down"
        )
        worker.gang.stop(number, "preemption" if taken else "shutdown", worker.rank, reason)
        return reason

    def _lost(self, rank: int) -> str:
        """Whether a watched worker is lost: silent, or in another boot."""
        worker, number = self._worker, self._attempt.number
        beat = worker.watch.look(rank)
        who = place(worker.job, rank)
        if beat.get("boot") != self._attempt.boots[rank]:
            reason = f"{who} was restarted"
            worker.gang.stop(number, "replaced", rank, reason)
            return reason
        silent = worker.watch.silent(rank)
        if silent > self._limits.lost_after:
            reason = f"{who} gave no sign of life for {silent:.0f} s"
            worker.gang.stop(number, "lost", rank, reason)
            return reason
        return ""

    def _stall(self, shipper: Shipper) -> str:
        """Whether no worker has said anything for too long."""
        limit = self._limits.stall_timeout
        if limit is None or shipper.silent < limit:
            return ""
        worker = self._worker
        for rank in range(1, worker.job.workers):
            beat = worker.watch.look(rank)
            if beat.get("phase") == "running" and float(beat.get("silent", 0.0)) < limit:
                return ""
        reason = f"no worker has printed anything for {limit:g} s"
        worker.gang.stop(self._attempt.number, "stall", 0, reason)
        return reason

    def _cut_off(self, error: OSError) -> str:
        """The store did not answer; when that lasts, the others take this worker for lost, rightly."""
        log.warning("the store does not answer: %s", error)
        unheard = self._worker.beat.unheard
        if unheard > 2 * self._limits.lost_after:
            return f"the store did not answer for {unheard:.0f} s"
        return ""

    def _end(self, command: Command) -> Exit:
        stop = None
        try:
            stop = self._worker.gang.store.read_json(layout.stop_key(self._attempt.number))
        except OSError as error:
            log.warning("the store does not answer: %s", error)
        if stop is not None and stop["cause"] == "stall":
            # With the fault handler on, Python says on SIGABRT where each thread was.
            command.signal(signal.SIGABRT)
            command.wait(_ABORT_GRACE)
        return command.end(self._limits.term_grace)

    def _report(self, ended: Exit, shipper: Shipper, *, complete: bool) -> None:
        worker, number = self._worker, self._attempt.number
        document = self._document(ended, shipper)
        try:
            worker.gang.left(number, worker.rank, {**document, "log_complete": complete})
            worker.upload_results()
        except OSError as error:
            log.warning("the end of attempt %d could not be reported: %s", number, error)

    def _document(self, ended: Exit, shipper: Shipper) -> dict[str, Any]:
        error = shipper.first_error
        return {
            "rank": self._worker.rank,
            "code": ended.code,
            "reason": ended.reason,
            "time": ended.when,
            "by_itself": self._by_itself,
            "oom": ended.oom,
            "first_error": {"time": error[0], "line": error[1]} if error else None,
        }
