from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from multislice_nb.jobs import layout
from multislice_nb.jobs.beat import Beat, Watch
from multislice_nb.jobs.gang import Gang, decide
from multislice_nb.jobs.record import JobSpec, Limits
from multislice_nb.jobs.store import Store

if TYPE_CHECKING:
    from pathlib import Path

SPEC = JobSpec(name="gang", command="x", accelerator_type="v4-8", node_count=2)
LIMITS = Limits(max_restarts=2, backoff=10.0, max_repairs=3)


@pytest.fixture
def gang(tmp_path: Path) -> Gang:
    """A gang of two in its first attempt."""
    made = Gang(Store(tmp_path), SPEC)
    made.form(1, "10.0.0.1:8476", ["a", "b"])
    return made


def failure(code: int = 1) -> dict[str, object]:
    """A verdict."""
    return {"kind": "failure", "reason": "rank 1: exit status 1", "code": code}


REPAIR = {"kind": "repair", "reason": "rank 1 was restarted"}


def test_failures_are_restarted_up_to_the_limit_with_growing_waits() -> None:
    """The first waits for the back-off, the second twice as long, the third ends the run."""
    assert decide(LIMITS, []).wait == 0
    assert decide(LIMITS, [failure()]).wait == 10
    assert decide(LIMITS, [failure(), failure()]).wait == 20
    assert decide(LIMITS, [failure()] * 3).reason == "failed 3 times, last: rank 1: exit status 1"


def test_repairs_count_apart() -> None:
    """Lost slices do not use up restarts, and have a limit of their own."""
    assert not decide(LIMITS, [failure(), REPAIR, REPAIR, REPAIR]).reason
    assert decide(LIMITS, [REPAIR] * 4).reason == "slices were lost 4 times, last: rank 1 was restarted"
    assert not decide(Limits(), [REPAIR] * 1000).reason


def test_some_exit_statuses_are_final() -> None:
    """A wrong command line is not tried again."""
    assert "would not change" in decide(LIMITS, [failure(2)]).reason


def test_the_first_to_stop_an_attempt_counts(gang: Gang) -> None:
    """A later cause does not replace it."""
    assert gang.stop(1, "failure", 1, "rank 1 failed", code=3)
    assert not gang.stop(1, "failure", 0, "rank 0 lost its peer", code=-6)
    verdict = gang.judge(1, ["a", "b"])
    assert (verdict["kind"], verdict["rank"], verdict["code"]) == ("failure", 1, 3)


def test_a_failure_beside_a_restarted_worker_is_a_repair(gang: Gang) -> None:
    """A command that failed because its peer's slice was lost did not fail by itself."""
    gang.stop(1, "failure", 0, "rank 0: exit status 1", code=1)
    assert gang.judge(1, ["a", "new"])["kind"] == "repair"


def test_a_verdict_stands(gang: Gang) -> None:
    """A leader that comes back judges as the one before it did."""
    gang.stop(1, "failure", 0, "rank 0: exit status 1", code=1)
    gang.judge(1, ["a", "b"])
    assert gang.judge(1, ["later", "later"])["kind"] == "failure"
    assert [verdict["kind"] for verdict in gang.verdicts()] == ["failure"]


def test_all_restarted_at_once_is_a_repair(gang: Gang) -> None:
    """A reset of everything leaves nobody who could say why."""
    assert gang.judge(1, ["c", "d"])["kind"] == "repair"


def test_success_needs_every_worker(gang: Gang) -> None:
    """One that has not said so is waited for; one that failed is no success."""
    gang.left(1, 0, {"code": 0})
    assert not gang.all_left_well(1)
    gang.left(1, 1, {"code": 1})
    assert not gang.all_left_well(1)
    gang.left(1, 1, {"code": 0})
    assert gang.all_left_well(1)


def test_the_first_end_counts(gang: Gang) -> None:
    """A run ends once."""
    assert gang.end("cancelled", "it was cancelled")
    assert not gang.end("succeeded", "all well")
    assert (gang.store.read_json(layout.END) or {})["outcome"] == "cancelled"


def test_only_changes_are_signs_of_life(tmp_path: Path) -> None:
    """A document of a worker that is gone proves nothing; one that changes does."""
    store, watch = Store(tmp_path), Watch(Store(tmp_path))
    store.write_json(layout.beat_key(0), {"boot": "old", "seq": 7, "phase": "waiting"})
    watch.look(0)
    watch.look(0)
    assert not watch.alive(0, 60.0)
    beat = Beat(store, 0, 0.01, boot="new", phase="waiting")
    while not watch.alive(0, 60.0):
        watch.look(0)
    beat.close(phase="ended")
    assert watch.look(0)["phase"] == "ended"
    assert watch.silent(1) == 0.0
