"""The first program of a worker, in this process: what it cannot mend it tells, and leaves nothing billing."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from multislice_nb.jobs import boot, layout
from multislice_nb.jobs.store import Store

if TYPE_CHECKING:
    from tests.jobs.answers import Google

RESOURCE = "projects/p/locations/z/queuedResources/one"


class Deleted(Exception):  # noqa: N818 - it is none
    """It has asked for the deletion, and would go on asking for ever."""


@pytest.fixture
def quick(google: Google, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits."""

    def sleep(_: float) -> None:
        if google.deleted:
            raise Deleted

    monkeypatch.setattr(time, "sleep", sleep)


def plan(store: Store, **more: Any) -> dict[str, Any]:
    """What the startup script passes on."""
    end = f"{layout.run_folder('one', 1)}/{layout.END}"
    return {"store": store.url, "queued_resource": RESOURCE, "workers_per_slice": 2, "end": end, **more}


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty store."""
    if request.param == "folder":
        return Store(tmp_path / "store")
    return Store(f"{request.getfixturevalue('bucket')}/boot")


@pytest.mark.usefixtures("quick")
def test_what_cannot_be_installed_ends_the_run_and_is_told(
    store: Store, google: Google, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run's end names the worker and has the installer's words; what another one told first stands."""
    monkeypatch.setattr(boot, "HOME", tmp_path / "home")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    uv = tmp_path / "home" / "uv" / "bin" / "uv"
    uv.parent.mkdir(parents=True)
    uv.write_text("#!/bin/sh\necho 'no-such-thing was not\nfound in the registry' >&2\nexit 1\n")
    uv.chmod(0o755)
    job = plan(store, supervisor_requirements=[], requirements=["no-such-thing==1"], environment="e")
    with pytest.raises(Deleted):
        boot.prepare(job)
    end = store.read_json(job["end"]) or {}
    assert end["outcome"] == "failed"
    assert end["reason"] == (
        "rank 5 (slice 2, worker 1): its environment cannot be made: no-such-thing was not found in the registry"
    )
    assert google.deleted == [f"/v2/{RESOURCE}?force=true"]
    with pytest.raises(Deleted):
        boot.give_up(job, "something else")
    assert store.read_json(job["end"]) == end
    assert list(store.walk("jobs")) == [job["end"].removeprefix("jobs/")]


@pytest.mark.usefixtures("quick")
def test_a_supervisor_that_was_up_for_long_may_end_more_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only ends that follow soon after a start are counted, and too many of them are given up on."""
    monkeypatch.setattr(boot, "MOST_STARTS", 2)
    script = f"""
import pathlib, sys
starts = pathlib.Path({str(tmp_path / "starts")!r})
starts.open("a").write("x")
sys.exit(len(starts.read_text()) < 4)
"""
    argv = [sys.executable, "-c", script]
    assert not boot.supervise(argv, {})
    assert len((tmp_path / "starts").read_text()) == 2
    (tmp_path / "starts").unlink()
    monkeypatch.setattr(boot, "LONG", 0.0)
    assert boot.supervise(argv, {})
