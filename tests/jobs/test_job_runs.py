from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from multislice_nb import jobs
from multislice_nb.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidRequestError,
    MultisliceError,
)
from multislice_nb.jobs.submitting import emulator_limits

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from multislice_nb.cloud import Cloud

    Submit = Callable[..., jobs.Job]
    Fault = Callable[..., None]

# What ends only when somebody ends it.
FOR_EVER = "echo ready; exec sleep 1000"


def test_a_job_outlives_the_process_that_submitted_it(cloud: Cloud, tmp_path: Path, look: Any) -> None:
    """Its kernel is killed right after submit; another process follows its log and collects its results."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "work.py").write_text(
        textwrap.dedent("""
        import json, os, pathlib
        names = ("RANK", "WORKERS", "SLICE_ID", "SLICES", "WORKER_ID", "ATTEMPT", "COORDINATOR_ADDRESS")
        found = {name: os.environ["MULTISLICE_NB_" + name] for name in names}
        found["megascale"] = os.environ["MEGASCALE_COORDINATOR_ADDRESS"]
        print(json.dumps(found))
        pathlib.Path(os.environ["MULTISLICE_NB_RESULTS"], "deep").mkdir()
        pathlib.Path(os.environ["MULTISLICE_NB_RESULTS"], "deep", "rank.txt").write_text(found["RANK"])
        """)
    )
    submit = f"""
import os, multislice_nb as ms
from multislice_nb import jobs
jobs.submit("alone", "python3 work.py", folder={str(folder)!r}, accelerator_type="v4-8", node_count=2,
            requirements=(), store={str(tmp_path / "store")!r}, cloud=ms.connect(emulator=True))
os.kill(os.getpid(), 9)
"""
    killed = subprocess.run([sys.executable, "-c", submit], env=os.environ, check=False, timeout=60)
    assert killed.returncode == -9
    job = jobs.get("alone", store=tmp_path / "store", cloud=cloud)
    lines = [json.loads(line.text) for line in job.logs(follow=True)]
    look.done(job, "succeeded")
    assert {line["RANK"]: line["SLICE_ID"] for line in lines} == {"0": "0", "1": "1"}
    assert {line["COORDINATOR_ADDRESS"] for line in lines} == {lines[0]["COORDINATOR_ADDRESS"]}
    assert {line["megascale"].split(":")[0] for line in lines} == {
        lines[0]["COORDINATOR_ADDRESS"].split(":")[0]
    }
    files = job.results(tmp_path / "results")
    assert [path.relative_to(tmp_path / "results").as_posix() for path in files] == [
        "rank-00000/deep/rank.txt",
        "rank-00001/deep/rank.txt",
    ]
    assert [status.name for status in jobs.list(store=tmp_path / "store", cloud=cloud)] == ["alone"]


def test_one_failing_worker_ends_the_gang_and_is_named(submit: Submit, look: Any) -> None:
    """The others are ended at once, the exit status that means so is not tried again, the slices are deleted."""
    fails = "sleep 1; echo 'ValueError: bad shard' >&2; exit 2"
    command = f"[ $MULTISLICE_NB_RANK = 1 ] && {{ {fails}; }}; exec sleep 1000"
    job = submit("fails", command)
    status = look.done(job, "failed")
    assert "rank 1 (slice 1, worker 0): exit status 2" in status.reason
    (attempt,) = status.attempts
    assert attempt.kind == "failure"
    assert attempt.first_failure is not None
    assert attempt.first_failure["rank"] == 1
    assert attempt.first_failure["first_error"]["line"] == "ValueError: bad shard"
    assert attempt.exits[0]["by_itself"] is False
    assert [(line.rank, line.text) for line in job.errors()] == [(1, "ValueError: bad shard")]


def test_a_failure_is_restarted_and_the_setup_is_done_once(submit: Submit, look: Any) -> None:
    """The second attempt does well, on the same machines."""
    command = "echo attempt $MULTISLICE_NB_ATTEMPT $(cat ~/setup); [ $MULTISLICE_NB_ATTEMPT = 2 ]"
    job = submit("again", command, setup="echo once >> ~/setup")
    status = look.done(job, "succeeded")
    assert [attempt.kind for attempt in status.attempts] == ["failure", "success"]
    assert set(look.texts(job)) == {"attempt 1 once", "attempt 2 once"}
    assert look.texts(job).count("attempt 2 once") == 2


def test_a_killed_command_and_its_children_are_told(submit: Submit, look: Any) -> None:
    """A command that is killed as the kernel does when memory runs out is a failure that says so."""
    limits = replace(emulator_limits(), max_restarts=0)
    job = submit("killed", "[ $MULTISLICE_NB_RANK = 0 ] && kill -9 $$; exec sleep 1000", limits=limits)
    status = look.done(job, "failed")
    assert "rank 0 (slice 0, worker 0): killed by SIGKILL" in status.reason


def test_a_preempted_slice_is_waited_for_also_while_there_is_no_capacity(
    submit: Submit, fault: Fault, look: Any
) -> None:
    """The loss counts as a repair; when capacity is back the job goes on by itself."""
    job = submit("spot", "echo ready; [ $MULTISLICE_NB_ATTEMPT = 2 ] || exec sleep 1000", spot=True)
    look.ready(job)
    fault("stock-out", generation="v4")
    fault("preempt", node="spot-1")
    look.until(job, lambda status: status.state == "repairing")
    fault("capacity", generation="v4")
    status = look.done(job, "succeeded")
    assert [attempt.kind for attempt in status.attempts] == ["repair", "success"]


def test_a_preempted_slice_that_was_alone_is_asked_for_again(submit: Submit, fault: Fault, look: Any) -> None:
    """Cloud TPU suspends it; whoever waits for the job starts its next run."""
    command = "echo ready; [ $MULTISLICE_NB_RUN = 2 ] || exec sleep 1000"
    job = submit("alone-spot", command, node_count=1, spot=True)
    look.until(job, lambda _: look.texts(job) == ["ready"])
    fault("preempt", node="alone-spot")
    status = job.wait(timeout=60)
    assert (status.run, status.state) == (2, "succeeded"), look.told(job)


def test_a_hanging_worker_makes_all_be_reset(submit: Submit, fault: Fault, look: Any) -> None:
    """A worker of a READY slice that is silent is brought back by a reset, asked for by another worker."""
    limits = replace(emulator_limits(), heartbeat=0.3, lost_after=2.0, boot_timeout=2.0)
    command = "echo ready; [ $MULTISLICE_NB_ATTEMPT = 2 ] || exec sleep 1000"
    job = submit("hangs", command, limits=limits)
    look.ready(job)
    fault("hang", node="hangs-0")
    status = look.done(job, "succeeded")
    assert "rank 0 (slice 0, worker 0) gave no sign of life" in status.attempts[0].reason
    assert status.attempts[0].kind == "failure"  # what hangs a machine may do so again: it counts


def test_a_worker_that_cannot_write_to_the_store_ends_the_job(
    submit: Submit, fault: Fault, look: Any
) -> None:
    """Resets do not help; the job says who it was, and leaves nothing behind."""
    limits = replace(emulator_limits(), heartbeat=0.2, lost_after=1.5, boot_timeout=2.0)
    job = submit("full", FOR_EVER, limits=limits)
    look.ready(job)
    fault("disk-full", node="full-1")
    status = look.done(job, "failed")
    assert "rank 1 (slice 1, worker 0) stays silent, 2 resets notwithstanding" in status.reason


def test_cancelling_deletes_even_when_the_leader_hangs(submit: Submit, fault: Fault, look: Any) -> None:
    """Any worker deletes the queued resource, and the output so far is kept."""
    limits = replace(emulator_limits(), heartbeat=0.3, lost_after=2.0)
    job = submit("cancels", FOR_EVER, limits=limits)
    look.ready(job)
    fault("hang", node="cancels-0")
    job.cancel(reason="enough")
    status = look.done(job, "cancelled")
    assert status.reason == "enough"
    assert "ready" in look.texts(job)
    assert any("deleting" in line.text for line in job.logs(ranks=[1], supervisor=True))


def test_the_time_limit_ends_everything(submit: Submit, look: Any) -> None:
    """What does not end by itself is ended, and deleted."""
    job = submit("late", FOR_EVER, limits=replace(emulator_limits(), time_limit=4.0))
    status = look.done(job, "timed out")
    assert "time limit of 4 s" in status.reason


def test_silence_is_a_failure_with_stacks(submit: Submit, look: Any) -> None:
    """When no worker prints anything any more the command is ended, and Python tells where it was."""
    limits = replace(emulator_limits(), stall_timeout=1.0, max_restarts=0)
    job = submit("stalls", "exec python3 -c 'import time; time.sleep(1000)'", limits=limits)
    status = look.done(job, "failed")
    assert "no worker has printed anything for 1 s" in status.reason
    assert any("Fatal Python error: Aborted" in text for text in look.texts(job))


def at_once(do: Callable[[], Any]) -> list[Any]:
    """What two callers get who do the same at the same time."""
    ready = threading.Barrier(2)

    def one(_: int) -> Any:
        ready.wait(10)
        try:
            return do()
        except MultisliceError as error:
            return error

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(one, range(2)))


def test_submitting_twice_gives_the_same_job_and_retry_a_new_run(submit: Submit, look: Any) -> None:
    """The name makes it idempotent, also at the same time; another job of that name is refused; retry needs an end."""
    job, other = at_once(lambda: submit("twice", "exit 2"))
    assert (job.run, other.run) == (1, 1)
    assert submit("twice", "exit 2").run == 1
    with pytest.raises(AlreadyExistsError, match="command"):
        submit("twice", "exit 3")
    with pytest.raises(FailedPreconditionError):
        job.remove()
    look.done(job, "failed")
    refused, taken = sorted(at_once(job.retry), key=lambda got: got is job)
    assert isinstance(refused, FailedPreconditionError), refused
    assert taken is job
    assert job.run == 2
    status = job.wait(timeout=60)
    assert (status.run, status.state) == (2, "failed")
    job.remove()
    assert job.store.list("jobs") == []


def test_a_submission_that_was_cut_short_is_taken_up(submit: Submit, look: Any) -> None:
    """Where there is a record and no run, submitting again asks for the slices."""
    first = submit("short", "echo done")
    look.done(first, "succeeded")
    first.store.remove("jobs/short/runs")
    assert not first.store.list("jobs/short/runs")
    look.done(submit("short", "echo done"), "succeeded")


def test_a_request_that_fails_is_no_running_job(submit: Submit, fault: Fault, look: Any) -> None:
    """A queued resource that cannot become ACTIVE ends the job, says why, and is deleted."""
    fault("fail-creation", node_id="broken-1")
    job = submit("broken", FOR_EVER)
    status = job.wait(timeout=60)
    assert status.state == "failed"
    assert "FAILED" in status.reason
    assert status.is_cleaned_up


def test_a_dry_run_shows_everything_and_does_nothing(submit: Submit, cloud: Cloud, tmp_path: Path) -> None:
    """Job, script and uploads are shown; the store and the project stay as they were."""
    plan = jobs.submit(
        "dry",
        "echo",
        accelerator_type="v4-8",
        node_count=2,
        store=tmp_path / "store",
        cloud=cloud,
        dry_run=True,
    )
    assert "queued-resources create dry" in str(plan)
    assert "--node-count" in str(plan)
    assert "jobs/dry/job.json" in str(plan)
    assert '"command": "echo"' in str(plan)
    assert not (tmp_path / "store").exists()
    script = str(plan.request.startup_script)  # type: ignore[union-attr]
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_fields_of_the_request_are_kept_as_they_are_written(cloud: Cloud, tmp_path: Path) -> None:
    """Durations and times are texts in a record; what no record can hold is refused, and nothing is written."""
    options: Any = {"accelerator_type": "v4-8", "store": tmp_path / "store", "cloud": cloud, "dry_run": True}
    wrong: dict[str, Any] = {"tags": {"a"}, "startup_script": "echo"}
    for name, value in wrong.items():
        with pytest.raises(InvalidRequestError, match=name.partition("_")[0]):
            jobs.submit("fields", "echo", **{**options, name: value})
    options |= {
        "valid_after_duration": timedelta(hours=6),
        "valid_until_time": datetime(2100, 1, 1, tzinfo=UTC),
    }
    plan = jobs.submit("fields", "echo", **options)
    assert isinstance(plan, jobs.DryRun)
    assert plan.spec.request == {"valid_after_duration": "6h", "valid_until_time": "2100-01-01T00:00:00Z"}
    assert "--valid-after-duration" in str(plan)
    assert not (tmp_path / "store").exists()


def test_limits_given_beside_the_rest_are_told_their_place(submit: Submit, tmp_path: Path) -> None:
    """On the command line they are flags like the others."""
    with pytest.raises(InvalidRequestError, match=r"limits=Limits\(max_restarts=0, backoff=1\)"):
        submit("strays", "echo", max_restarts=0, spot=True, backoff=1)
    assert not (tmp_path / "store").exists()


def test_workers_that_cannot_read_the_store_give_their_slices_back(submit: Submit, look: Any) -> None:
    """Nothing bills on while nobody can say why it does not start."""
    limits = replace(emulator_limits(), boot_timeout=1.0)
    job = submit("blind", FOR_EVER, limits=limits)
    job.store.remove("packages")
    status = look.done(job, "failed")
    assert "(slice " in status.reason
    assert "which cannot be read" in status.reason


def test_a_bare_initialize_joins_the_gang(submit: Submit, look: Any) -> None:
    """A script that knows nothing of jobs finds address, number and rank, as on TPU VMs."""
    script = "import jax; jax.distributed.initialize(); print(jax.process_index(), jax.device_count())"
    job = submit("bare", f"python3 -c '{script}'")
    look.done(job, "succeeded")
    assert {"0 8", "1 8"} <= set(look.texts(job))


def test_what_another_start_would_meet_again_is_final(submit: Submit, look: Any) -> None:
    """A batch that the workers cannot share is told once, and not tried again."""
    script = "from multislice_nb.jobs import data, initialize; initialize(); data.batches([1], batch_size=3)"
    job = submit("odd", f"python3 -c '{script}'")
    status = look.done(job, "failed")
    assert len(status.attempts) == 1
    assert "starting again would not change that" in status.reason
    assert any("Take 2 or 4 records" in text for text in look.texts(job))
