"""What people see of a job: text, HTML and the panel's tab, all from the documents of its store."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pytest

from multislice_nb import jobs
from multislice_nb.errors import AlreadyExistsError, PermissionDeniedError
from multislice_nb.jobs import JobSpec, Store, layout
from multislice_nb.jobs.gang import Gang
from multislice_nb.jobs.status import read_status
from multislice_nb.jobs.submitting import _existing

if TYPE_CHECKING:
    from pathlib import Path

    from multislice_nb.cloud import Cloud

SPEC = JobSpec(name="told", command="x", accelerator_type="v4-8", node_count=2)
ERROR = "ValueError: bad <shard>"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """The store of a job whose rank 1 failed, with its log, and whose slices are gone."""
    made = Store(tmp_path / "store")
    made.write_json(f"{layout.job_folder('told')}/{layout.JOB}", SPEC.to_json())
    run = made.child(layout.run_folder("told", 1))
    run.write_json(layout.JOB, SPEC.to_json())
    document = {"time": time.time() - 60, "queued_resource": "told", "zone": "us-central2-b", "project": "p"}
    run.write_json(layout.RUN, {**document, "nodes": "told-[0-9]+", "emulator": True, "created": True})
    gang = Gang(run, SPEC)
    gang.form(1, "10.0.0.1:8476", ["a", "b"])
    gang.stop(1, "failure", 1, "rank 1 (slice 1, worker 0): exit status 2", code=2)
    for rank, code in ((0, -15), (1, 2)):
        first = {"time": time.time(), "line": ERROR} if rank else None
        left = {
            "rank": rank,
            "code": code,
            "time": time.time(),
            "by_itself": bool(rank),
            "first_error": first,
        }
        gang.left(1, rank, left)
        text = f"hello from {rank}\n" + (f"{ERROR}\n" if rank else "")
        run.write(f"{layout.log_folder(rank, 1)}/000000.log", text.encode())
        run.write_json(f"{layout.log_folder(rank, 1)}/000000.json", {"marks": [[time.time(), len(text)]]})
    gang.judge(1, ["a", "b"])
    gang.end("failed", "rank 1 (slice 1, worker 0): exit status 2; starting again would not change that")
    return made


def test_a_failure_is_told_with_the_workers_own_words(store: Store, cloud: Cloud) -> None:
    """Who failed first and what it said stand beside the attempt; in HTML nothing becomes markup."""
    status = jobs.get("told", store=store, cloud=cloud).status()
    assert status.is_cleaned_up
    assert f"first error: {ERROR}" in str(status)
    assert "ValueError: bad &lt;shard&gt;" in status._repr_html_()
    assert "<shard>" not in status._repr_html_()


def test_a_reason_of_several_lines_is_told_in_one(store: Store, cloud: Cloud) -> None:
    """A setup's last words, line by line, do not break the table of attempts."""
    run = store.child(layout.run_folder("told", 1))
    for key in (layout.END, layout.stop_key(1)):
        document = run.read_json(key) or {}
        run.write_json(key, {**document, "reason": "its setup said:\n  no\u2028such\x0bthing\n"})
    status = jobs.get("told", store=store, cloud=cloud).status()
    assert status.reason == status.attempts[0].reason == "its setup said: no such thing"
    assert "its setup said: no such thing" in str(status).splitlines()[1]


def test_a_job_is_the_same_wherever_it_is_submitted_from(store: Store, cloud: Cloud) -> None:
    """It is compared with what was asked for first: not with a retry on fewer slices, nor by the place of its code."""
    store.child(layout.run_folder("told", 2)).write_json(layout.JOB, replace(SPEC, node_count=1).to_json())
    job = jobs.get("told", store=store, cloud=cloud)
    assert _existing(job, replace(SPEC, source="/elsewhere")) is job
    with pytest.raises(AlreadyExistsError, match="node_count"):
        _existing(job, replace(SPEC, node_count=1))


def test_what_cannot_be_looked_at_hides_no_other_job(
    store: Store, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that is none, a record that is broken, and a project that is not one's own are told in their rows."""
    store.write("jobs/stray/notes.txt", b"")
    store.write(f"{layout.job_folder('broken')}/{layout.JOB}", b"{")
    store.write_json(f"{layout.job_folder('denied')}/{layout.JOB}", replace(SPEC, name="denied").to_json())
    document = {"time": time.time(), "queued_resource": "denied", "zone": "us-central2-b", "project": "p"}
    store.write_json(f"{layout.run_folder('denied', 1)}/{layout.RUN}", {**document, "emulator": True})
    get = type(cloud).get

    def denied(self: Cloud, name: str, *more: str) -> Any:
        if name == "denied":
            raise PermissionDeniedError("You may not look at it.")
        return get(self, name, *more)

    monkeypatch.setattr(type(cloud), "get", denied)
    found = {status.name: status for status in jobs.list(store=store, cloud=cloud)}
    assert {name: status.state for name, status in found.items()} == {
        "told": "failed",
        "stray": "unknown",
        "broken": "unknown",
        "denied": "unknown",
    }
    assert "There is no job stray" in found["stray"].reason
    assert found["denied"].reason == "You may not look at it."


def test_slices_that_are_gone_untold_end_the_job(store: Store, cloud: Cloud) -> None:
    """Where no worker could say anything, it has failed all the same."""
    run = store.child(layout.run_folder("told", 1))
    run.remove(layout.END)
    (status,) = jobs.list(store=store, cloud=cloud)
    assert (status.state, status.is_cleaned_up) == ("failed", True)
    assert "perhaps none could read the store" in status.reason


def test_what_is_being_submitted_is_left_alone(store: Store, cloud: Cloud) -> None:
    """Between its record and its run nobody takes it for one whose slices are gone."""
    store.remove(f"{layout.job_folder('told')}/runs")
    assert jobs.get("told", store=store, cloud=cloud).tend().attempts == ()
    assert list(store.walk(layout.job_folder("told"))) == [layout.JOB]


def test_a_job_of_another_emulator_is_left_alone(
    store: Store, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever shares its store sees what the store says, and takes no slices for lost that are elsewhere."""
    run = store.child(layout.run_folder("told", 1))
    run.remove(layout.END)
    run.remove(layout.stop_key(1))
    run.remove(layout.verdict_key(1))
    run.write_json(layout.RUN, {**(run.read_json(layout.RUN) or {}), "emulator_home": "other:/home"})
    monkeypatch.setattr(type(cloud), "get", lambda *_: pytest.fail("another emulator's queued resource"))
    job = jobs.get("told", store=store, cloud=cloud)
    (status,) = jobs.list(store=store, cloud=cloud)
    assert (status.state, status.queued_resource) == ("running", "elsewhere")
    assert not run.exists(layout.END)
    assert job.cancel().tend().is_cleaned_up  # its workers read that it is cancelled, and delete their slices
    assert (run.read_json(layout.END) or {})["outcome"] == "cancelled"


def test_on_google_cloud_the_machines_own_logs_are_a_link_away(store: Store) -> None:
    """The page asks for the run's nodes, whatever their number; with the emulator there is none."""
    run = store.child(layout.run_folder("told", 1))
    document = run.read_json(layout.RUN) or {}
    assert not read_status(store, SPEC, 1, document, "").log_link
    document = {
        **document,
        "emulator": False,
        "zone": "us-central2-b",
        "project": "example.com:p",
        "time": 1e9,
    }
    status = read_status(store, SPEC, 1, document, "")
    link = urlsplit(status.log_link)
    assert (link.scheme, link.netloc, link.query) == (
        "https",
        "console.cloud.google.com",
        "project=example.com%3Ap",
    )
    path, _, query = link.path.partition(";query=")
    assert path == "/logs/query"
    assert not set(query) & set('";= \n')  # nothing in it ends it
    lines = unquote(query).splitlines()
    assert lines[:4] == [
        'resource.type="tpu_worker"',
        'resource.labels.zone="us-central2-b"',
        'resource.labels.node_id=~"^told-[0-9]+$"',
        'timestamp>="2001-09-09T01:46:40Z"',
    ]
    # The page shows the last hour otherwise: nothing of a job that ended yesterday.
    assert status.ended is not None
    last = datetime.fromisoformat(lines[4].removeprefix('timestamp<="').rstrip('"'))
    assert last.timestamp() >= int(status.ended)


def test_the_tab_shows_jobs_their_logs_and_their_errors(store: Store, cloud: Cloud) -> None:
    """A table of all jobs, the log of the chosen one, and of all its workers the first error, with the magics."""
    pytest.importorskip("ipywidgets")
    from multislice_nb.widgets.jobs_tab import JobsTab

    def quietly(work: Any, then: Any) -> None:
        then(asyncio.run(work(lambda _: None)))

    session: Any = SimpleNamespace(cloud=cloud, connected=lambda: cloud)
    desk: Any = SimpleNamespace(quietly=quietly)
    tab = JobsTab(session, desk, store.url)
    assert "No jobs" in tab._table.value
    tab.show(SimpleNamespace())  # type: ignore[arg-type]
    assert "told" in tab._table.value
    tab.logs.click()
    assert "[1:0] hello from 0" in tab._detail.value
    assert "%multislice job logs told<" in tab._detail.value
    tab.errors.click()
    assert "[1:1] ValueError: bad &lt;shard&gt;" in tab._detail.value
    assert "hello" not in tab._detail.value
    assert "%multislice job logs told --errors<" in tab._detail.value
    assert tab.cancel.disabled
