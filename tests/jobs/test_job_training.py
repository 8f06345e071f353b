"""The reference training script as a job, undisturbed and disturbed in every way that slices are lost."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from multislice_nb import jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Submit = Callable[..., jobs.Job]
    Fault = Callable[..., None]
    Steps = dict[tuple[int, int], tuple[float, tuple[int, ...]]]

pytestmark = pytest.mark.timeout(900)  # four processes that start, train and are lost, on two cores

STEPS = 16
SLICES, WORKERS = 2, 2
RANKS = SLICES * WORKERS
TYPE = "v4-16"
TRAIN = f"python3 -m multislice_nb.jobs.reference.train --steps {STEPS}"
# Slowly at first, so that there is time to disturb it.
SLOWLY = "--pause $([ $MULTISLICE_NB_ATTEMPT -le {attempts} ] && echo 0.25 || echo 0)"


def steps(job: jobs.Job, **options: Any) -> Steps:
    """Loss and record ids by step and rank, as they were last printed."""
    lines = [(line.rank, json.loads(line.text)) for line in job.logs(**options) if line.text.startswith("{")]
    return {(line["step"], rank): (line["loss"], tuple(line["ids"])) for rank, line in lines}


@pytest.fixture(scope="module")
def calm(emulator_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[jobs.Job]:
    """A run that nothing happens to, for all tests of this module; it is still under way when the first one begins."""
    import multislice_nb as ms

    job = jobs.submit(
        "calm",
        f"{TRAIN} --every 6",
        accelerator_type=TYPE,
        node_count=SLICES,
        requirements=(),
        store=tmp_path_factory.mktemp("calm"),
        cloud=ms.connect(emulator=True),
    )
    assert isinstance(job, jobs.Job)
    yield job
    job._delete_queued_resource(wait=True)


def expected(calm: jobs.Job, look: Any) -> Steps:
    """What every run must come to."""
    assert calm.wait(timeout=240).state == "succeeded", look.told(calm)
    found = steps(calm)
    assert len(found) == RANKS * STEPS, look.told(calm)
    return found


def records(found: Steps) -> list[int]:
    """The records of the last batch, whoever had them."""
    return sorted(sum((ids for (step, _), (_, ids) in found.items() if step == STEPS), ()))


def assert_same(job: jobs.Job, whole: Steps) -> None:
    """What it printed is what the undisturbed run printed, step by step to the end.

    The last lines of a machine that is taken away without notice are lost with its disk. A line that is missing is
    such a one: the workers of the other slice have the loss of that step, which comes from the whole batch and all steps before it.
    """
    found = steps(job)
    assert found == {key: whole[key] for key in found}
    assert {step for step, _ in found} == {step for step, _ in whole}
    assert {(STEPS, rank) for rank in range(RANKS)} <= set(found)
    assert len(whole) - len(found) <= WORKERS * STEPS / 2


def kinds(job: jobs.Job) -> list[str]:
    """What the ends of its attempts counted as."""
    return [attempt.kind for attempt in job.status().attempts]


def test_slices_lost_in_the_middle_and_again_change_nothing(
    submit: Submit, fault: Fault, calm: jobs.Job, bucket: str, look: Any
) -> None:
    """One slice goes and is waited for while there is no capacity, then the other, with notice: the same losses.

    All of it goes through a bucket here, where Orbax completes a checkpoint in another way than in a folder.
    """
    command = f"{TRAIN} --every 3 {SLOWLY.format(attempts=2)}"
    job = submit("rough", command, accelerator_type=TYPE, spot=True, store=f"{bucket}/rough")
    complete = "jobs/rough/checkpoints/steps/3/commit_success.txt"
    look.until(job, lambda _: any(step >= 6 for step, _ in steps(job)) and job.store.exists(complete), 180)
    fault("stock-out", generation="v4")
    fault("preempt", node="rough-1")
    look.until(job, lambda status: status.state == "repairing")
    fault("capacity", generation="v4")
    look.until(job, lambda _: bool(steps(job, attempt=2)), 180)
    fault("preempt", node="rough-0", warning=6.0)
    assert job.wait(timeout=240).state == "succeeded", look.told(job)
    assert kinds(job) == ["repair", "repair", "success"], look.told(job)
    starts = [line.text for line in job.logs(ranks=[0]) if "devices, from step" in line.text]
    assert starts[0] == "16 devices, from step 0"
    assert int(starts[1].split()[-1]) >= 3
    # Of the second loss there was notice: it was saved in time, and nothing is done again.
    assert int(starts[2].split()[-1]) == max(step for step, _ in steps(job, attempt=2))
    whole = expected(calm, look)
    assert_same(job, whole)

    # The next run goes on from the checkpoint of step 15 with half of the slices.
    job.retry(node_count=1)
    assert job.wait(timeout=240).state == "succeeded", look.told(job)
    alone = steps(job)
    assert set(alone) == {(STEPS, rank) for rank in range(WORKERS)}
    assert alone[STEPS, 0][0] == pytest.approx(whole[STEPS, 0][0], rel=1e-5)
    assert records(alone) == records(whole)


def half_written(job: jobs.Job) -> str:
    """The checkpoint that is not whole: in a folder by its name, in a bucket by what it lacks; none, nothing."""
    place = f"jobs/{job.name}/checkpoints/steps"
    names = [name.rstrip("/") for name in job.store.list(place)]
    if job.store.is_local:
        drafts = [name for name in names if "tmp" in name]
    else:
        drafts = [name for name in names if not job.store.exists(f"{place}/{name}/commit_success.txt")]
    return drafts[0] if drafts else ""


def stopped_in_a_save(job: jobs.Job, fault: Fault, node: str) -> str:
    """Stop a slice in its tracks at a moment when a checkpoint is half written; gives that one's name."""
    limit = time.monotonic() + 180
    while time.monotonic() < limit:
        fault("hang", node=node)
        if draft := half_written(job):
            return draft
        fault("hang", node=node, on=False)
        assert not job.status().is_over
        time.sleep(0.02)
    raise AssertionError("no save was met")


@pytest.mark.parametrize("where", ["folder", "bucket"])
def test_slices_lost_while_starting_and_while_saving_change_nothing(
    submit: Submit,
    fault: Fault,
    calm: jobs.Job,
    bucket: str,
    tmp_path: Path,
    look: Any,
    where: str,
) -> None:
    """One slice goes before the first step, the other with half a checkpoint, which is never loaded."""
    command = f"{TRAIN} --every 1 {SLOWLY.format(attempts=2)}"
    name, store = f"early-{where}", tmp_path if where == "folder" else f"{bucket}/early"
    job = submit(name, command, accelerator_type=TYPE, spot=True, store=store)
    look.until(job, lambda status: status.queued_resource == "ACTIVE")
    assert not steps(job)
    fault("preempt", node=f"{name}-1")
    look.until(job, lambda _: any(step >= 2 for step, _ in steps(job)), 180)
    draft = stopped_in_a_save(job, fault, f"{name}-1")
    fault("preempt", node=f"{name}-1")
    assert job.wait(timeout=240).state == "succeeded", look.told(job)
    assert kinds(job)[-2:] == ["repair", "success"], look.told(job)
    assert half_written(job) == ""
    assert where == "bucket" or draft not in job.store.list(f"jobs/{name}/checkpoints/steps")
    assert_same(job, expected(calm, look))
