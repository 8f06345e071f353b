"""How the workers of a run agree: on who forms the gang of an attempt, that it must end, and what follows.

There is no server: they agree through documents in the store, of which the first one written counts. Rank 0
leads, since JAX's coordinator lives with it; everything it knows is in the store, so that a replaced rank 0
goes on where the lost one was.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from multislice_nb.jobs import layout

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from multislice_nb.jobs.record import JobSpec, Limits
    from multislice_nb.jobs.store import Store

__all__ = ["REPAIRS", "Attempt", "Decision", "Gang", "decide"]

REPAIRS = frozenset({"preemption", "lost", "replaced", "shutdown"})
"""Causes of an attempt's end that are nobody's fault: a slice was lost or restarted."""

_LONGEST_BACKOFF = 600.0


@dataclass(frozen=True, slots=True)
class Attempt:
    """A gang that was formed.

    Attributes:
        number: Counts from 1.
        coordinator: `address:port` of JAX's coordinator.
        boots: The boot of each worker, by rank: another boot of the same worker is not a member.
        time: When it was formed.
    """

    number: int
    coordinator: str
    boots: tuple[str, ...]
    time: float


@dataclass(frozen=True, slots=True)
class Decision:
    """What follows the end of an attempt: wait and start again, or the end of the run.

    Attributes:
        wait: Seconds to wait before the next attempt.
        reason: Why the run ends; empty where it goes on.
    """

    wait: float = 0.0
    reason: str = ""


class Gang:
    """The documents under `control/` and `exits/` of a run.

    Args:
        store: The store of the run.
        job: What runs.
    """

    def __init__(self, store: Store, job: JobSpec) -> None:
        self.store = store
        self.job = job

    def names(self) -> set[str]:
        """What is there: one listing tells everything that may have happened."""
        return {f"control/{name}" for name in self.store.list("control")}

    @staticmethod
    def latest(names: set[str]) -> int:
        """The number of the last attempt; 0 before the first."""
        found = [int(name[-9:-5]) for name in names if name.startswith("control/attempt-")]
        return max(found, default=0)

    def began(self) -> float:
        """When the first worker of the run came up; this call says so where none did before."""
        self.store.create_json(layout.BEGAN, {"time": time.time()})
        return float((self.store.read_json(layout.BEGAN) or {})["time"])

    def attempt(self, number: int) -> Attempt | None:
        """The gang of an attempt."""
        found = self.store.read_json(layout.attempt_key(number))
        if found is None:
            return None
        return Attempt(number, str(found["coordinator"]), tuple(found["boots"]), float(found["time"]))

    def form(self, number: int, coordinator: str, boots: Sequence[str]) -> None:
        """Declare who forms the gang of an attempt."""
        document = {"coordinator": coordinator, "boots": list(boots), "time": time.time()}
        self.store.create_json(layout.attempt_key(number), document)

    def stop(self, number: int, cause: str, rank: int, reason: str, **more: Any) -> bool:
        """Say that an attempt must end; the first one to say so counts."""
        document = {"cause": cause, "rank": rank, "reason": reason, "time": time.time(), **more}
        return self.store.create_json(layout.stop_key(number), document)

    def left(self, number: int, rank: int, document: Mapping[str, Any]) -> None:
        """Say what became of this worker's command."""
        self.store.write_json(layout.exit_key(number, rank), document)

    def exits(self, number: int) -> dict[int, dict[str, Any]]:
        """What became of the command on each worker that has said so."""
        prefix = f"{number:04d}-"
        names = [name for name in self.store.list("exits") if name.startswith(prefix)]
        found = {int(name[5:10]): self.store.read_json(f"exits/{name}") for name in names}
        return {rank: document for rank, document in found.items() if document}

    def all_left_well(self, number: int) -> bool:
        """Whether every worker's command ended well."""
        names = [name for name in self.store.list("exits") if name.startswith(f"{number:04d}-")]
        if len(names) < self.job.workers:
            return False
        return all(document["code"] == 0 for document in self.exits(number).values())

    def judge(self, number: int, boots: Sequence[str]) -> dict[str, Any]:
        """What the end of an attempt counts as, once all workers are known to be there again.

        A command often fails because another worker was lost. So a failure counts as one only where every
        worker still is in the boot in which it began; or where a worker hung until all were reset, since what
        hangs a machine once does so again.
        """
        stop = self.store.read_json(layout.stop_key(number)) or {
            "cause": "replaced",
            "rank": -1,
            "reason": "every worker was restarted",
        }
        attempt = self.attempt(number)
        changed = [rank for rank, boot in enumerate(attempt.boots if attempt else ()) if boot != boots[rank]]
        hung = bool(self.resets(number))
        kind = "repair" if (stop["cause"] in REPAIRS or changed) and not hung else "failure"
        verdict = {**stop, "kind": kind, "restarted": changed}
        self.store.create_json(layout.verdict_key(number), verdict)
        return self.store.read_json(layout.verdict_key(number)) or verdict

    def resets(self, number: int) -> list[str]:
        """The resets after an attempt, for which a silent worker of a READY slice was the reason."""
        prefix = f"reset-{number:04d}-"
        return [name for name in self.store.list("control") if name.startswith(prefix)]

    def verdicts(self) -> list[dict[str, Any]]:
        """What the attempts' ends counted as, in order."""
        names = [name for name in self.store.list("control") if name.startswith("verdict-")]
        found = [self.store.read_json(f"control/{name}") for name in names]
        return [document for document in found if document]

    def end(self, outcome: str, reason: str, **more: Any) -> bool:
        """Declare how the run ended; the first declaration counts.

        Args:
            outcome: succeeded, failed, timed out or cancelled.
            reason: Why, in a sentence that names the worker if there is one.
            **more: Further facts.
        """
        document = {"outcome": outcome, "reason": reason, "time": time.time(), **more}
        return self.store.create_json(layout.END, document)


def decide(limits: Limits, verdicts: Sequence[Mapping[str, Any]]) -> Decision:
    """What follows after attempts that ended so.

    Args:
        limits: The job's.
        verdicts: What the ends counted as, in order.
    """
    if not verdicts:
        return Decision()
    last = verdicts[-1]
    failures = [verdict for verdict in verdicts if verdict["kind"] == "failure"]
    repairs = len(verdicts) - len(failures)
    if last["kind"] == "repair":
        if limits.max_repairs is not None and repairs > limits.max_repairs:
            return Decision(reason=f"slices were lost {repairs} times, last: {last['reason']}")
        return Decision()
    if last.get("code") in limits.no_restart_codes:
        return Decision(reason=f"{last['reason']}; starting again would not change that")
    if len(failures) > limits.max_restarts:
        times = f"failed {len(failures)} times, last: " if len(failures) > 1 else ""
        return Decision(reason=f"{times}{last['reason']}")
    return Decision(wait=min(limits.backoff * 2 ** (len(failures) - 1), _LONGEST_BACKOFF))
