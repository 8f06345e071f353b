"""The reference training script as a job, undisturbed and disturbed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from multislice_nb import jobs

STEPS = 16
TRAIN = f"python3 -m multislice_nb.jobs.reference.train --steps {STEPS} --every 3 --pause 0.2"


def steps(job: jobs.Job) -> dict[tuple[int, int], tuple[float, tuple[int, ...]]]:
    """Loss and record ids by step and rank, as they were last printed."""
    lines = [(line.rank, json.loads(line.text)) for line in job.logs() if line.text.startswith("{")]
    return {(line["step"], rank): (line["loss"], tuple(line["ids"])) for rank, line in lines}


def test_a_preempted_run_has_the_losses_and_batches_of_an_undisturbed_one(
    submit: Callable[..., jobs.Job], fault: Callable[..., None], look: Any
) -> None:
    """One loses a slice in the middle, and goes on from its last checkpoint to the very same numbers."""
    undisturbed = submit("calm", TRAIN)
    disturbed = submit("rough", TRAIN, spot=True)
    look.until(disturbed, lambda _: any(step >= 7 for step, _ in steps(disturbed)), 90)
    fault("preempt", node="rough-1")
    assert disturbed.wait(timeout=120).state == "succeeded", look.told(disturbed)
    assert undisturbed.wait(timeout=120).state == "succeeded", look.told(undisturbed)
    assert [attempt.kind for attempt in disturbed.status().attempts] == ["repair", "success"]
    starts = [line.text for line in disturbed.logs(ranks=[0]) if "devices, from step" in line.text]
    assert starts[0] == "8 devices, from step 0"
    assert int(starts[1].split()[-1]) >= 6
    expected = steps(undisturbed)
    assert len(expected) == 2 * STEPS
    assert steps(disturbed) == expected

    # The next run goes on from the checkpoint of step 15 with half of the slices.
    disturbed.retry(node_count=1)
    assert disturbed.wait(timeout=120).state == "succeeded", look.told(disturbed)
    alone = steps(disturbed)
    assert list(alone) == [(STEPS, 0)]
    loss, ids = alone[STEPS, 0]
    assert loss == pytest.approx(expected[STEPS, 0][0], rel=1e-5)
    assert sorted(ids) == sorted(expected[STEPS, 0][1] + expected[STEPS, 1][1])
