"""What the supervisor does on its worker, in this process: what passes is waited for, what happened is told."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from multislice_nb.jobs import layout, supervisor
from multislice_nb.jobs.assembling import Assembly
from multislice_nb.jobs.attempting import Attempting
from multislice_nb.jobs.beat import Beat, Watch
from multislice_nb.jobs.machine import Machine
from multislice_nb.jobs.record import JobSpec
from multislice_nb.jobs.shipping import Shipper
from multislice_nb.jobs.store import Store
from multislice_nb.jobs.submitting import emulator_limits
from multislice_nb.jobs.tpu_api import OwnQueuedResource
from multislice_nb.jobs.worker import Signals, Worker
from tests.jobs.answers import SECRET, VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.jobs.answers import Google

SPEC = JobSpec(name="one", command="true", accelerator_type="v4-8", limits=emulator_limits())


@pytest.fixture
def worker_of(
    google: Google, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[JobSpec], Worker]]:
    """Makes the only worker of a run, whose home and store are this test's own."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    store = Store(tmp_path / "store")
    run = store.child(layout.run_folder("one", 1))
    beat = Beat(run, 0, 0.05, boot="b")

    def made(job: JobSpec) -> Worker:
        return Worker(
            job=job,
            run=1,
            store=store,
            machine=Machine(0, 0, "one", "p", "z", "127.0.0.1"),
            own=OwnQueuedResource("projects/p/locations/z/queuedResources/one"),
            beat=beat,
            watch=Watch(run),
            boot="b",
            deadline=time.time() + 60.0,
            signals=Signals(),
        )

    yield made
    beat.close()


def seen(condition: Callable[[], bool]) -> None:
    """Wait for a condition."""
    limit = time.monotonic() + 30.0
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.01)


def test_an_end_that_could_not_be_told_is_told_later(
    worker_of: Callable[[JobSpec], Worker], caplog: pytest.LogCaptureFixture
) -> None:
    """A store that does not answer when the command fails hides neither the worker nor the reason."""
    worker = worker_of(replace(SPEC, command="echo 'ValueError: bad' >&2; exit 3"))
    supervisor._prepare(worker)
    worker.gang.form(1, "127.0.0.1:8476", ["b"])
    attempt = worker.gang.attempt(1)
    assert attempt is not None
    control = Path(worker.gang.store.path("control"))
    aside = control.with_name("aside")
    control.rename(aside)
    control.write_text("")  # where no document can be written
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(Attempting(worker, attempt).run)
        seen(lambda: "the store does not answer" in caplog.text or running.done())
        control.unlink()
        aside.rename(control)
        running.result(30.0)
    stop = worker.gang.store.read_json(layout.stop_key(1)) or {}
    assert (stop["cause"], stop["code"]) == ("failure", 3)
    assert stop["reason"] == "rank 0 (slice 0, worker 0): exit status 3: ValueError: bad"


def test_what_passes_is_waited_for(worker_of: Callable[[JobSpec], Worker], google: Google) -> None:
    """A secret that Secret Manager could not give at once is there in the end, and the run has not failed."""
    google.refusals = [503, 429]
    worker = worker_of(replace(SPEC, secrets={"TOKEN": VERSION}))
    assert supervisor._prepare(worker) == ""
    assert worker.environment["TOKEN"] == SECRET


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_what_stays_refused_is_told_at_once(
    worker_of: Callable[[JobSpec], Worker], google: Google, status: int
) -> None:
    """Whoever may not read a secret may not later either."""
    google.refusals = [status]
    worker = worker_of(replace(SPEC, secrets={"TOKEN": VERSION}))
    assert str(status) in supervisor._prepare(worker)


def test_code_that_is_not_there_is_told_at_once(worker_of: Callable[[JobSpec], Worker]) -> None:
    """Nobody brings it any more."""
    assert "missing.tar.gz is not in" in supervisor._prepare(
        worker_of(replace(SPEC, package="missing.tar.gz"))
    )


@pytest.mark.parametrize("readable", [True, False])
def test_what_an_earlier_boot_logged_is_shipped_without_secrets_or_not_at_all(
    worker_of: Callable[[JobSpec], Worker], google: Google, tmp_path: Path, readable: bool
) -> None:
    """Its last words lay on the disk when the machine went down; secrets that cannot be read cannot be masked."""
    google.refusals = [] if readable else [403]
    worker = worker_of(replace(SPEC, secrets={"TOKEN": VERSION}))
    worker.signals.terminated = True  # it only prepares
    left = worker.folder / "logs" / "0001.log"
    left.parent.mkdir(parents=True)
    left.write_text(f"the token is {SECRET}\n")
    own = Shipper(tmp_path / "own.log", worker.gang.store, "logs/00000/boot-b", 0.05)
    supervisor._supervise(worker, own)
    assert own.close(10.0)
    shipped = worker.gang.store.read(f"{layout.log_folder(0, 1)}/000000.log")
    assert shipped == (f"the token is {'*' * len(SECRET)}\n".encode() if readable else None)
    assert layout.END not in worker.gang.names()


def test_a_reset_that_failed_does_not_count(worker_of: Callable[[JobSpec], Worker], google: Google) -> None:
    """It is asked for again; and where it may not be asked for at all, the run ends and says so."""
    google.refusals = [503, 200, 403]
    limits = replace(SPEC.limits, boot_timeout=0.01, heartbeat=0.001, lost_after=0.01)
    worker = worker_of(replace(SPEC, node_count=2, limits=limits))
    worker.watch.look(1)
    assembly = Assembly(worker)

    def look() -> list[str]:
        asked = len(google.refusals)

        def was_asked() -> bool:
            assembly._look_after([1], 1)
            return len(google.refusals) < asked

        seen(was_asked)
        return worker.gang.resets(1)

    assert look() == []
    assert len(look()) == 1
    assert layout.END not in worker.gang.names()
    look()
    end = worker.gang.store.read_json(layout.END) or {}
    assert "rank 1 (slice 1, worker 0) stays silent, and this job may not reset its slices" in end["reason"]
