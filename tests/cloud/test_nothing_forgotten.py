"""Ledger, reclaim, times to live and recreation: nothing is paid for that nobody remembers."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import textwrap
import time
from contextlib import closing
from datetime import timedelta

import pytest

from multislice_nb._portal import sync
from multislice_nb.cloud import connect
from multislice_nb.cloud.ledger import Ledger
from multislice_nb.errors import InvalidRequestError, NotFoundError


def run_notebook(home, code):
    """A process of its own that ends without cleaning up, as a killed kernel does."""
    head = "import os, signal, multislice_nb as ms\ncloud = ms.connect(emulator=True)\n"
    tail = "\nos.kill(os.getpid(), signal.SIGKILL)\n"
    environment = {**os.environ, "MULTISLICE_NB_HOME": str(home)}
    ended = subprocess.run(
        [sys.executable, "-c", head + textwrap.dedent(code) + tail],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr


def until(condition, seconds=20.0):
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.05)


def test_what_a_killed_notebook_left_is_found_with_its_chips(cloud, emulator_home):
    """After a kernel was killed, connect() mentions what it left, and reclaim() lists and sweeps it."""
    run_notebook(emulator_home, 'cloud.create("left", accelerator_type="v4-16", node_count=2).wait()')
    assert "left (16 chips)" in cloud.notices[-1]
    found = cloud.reclaim()
    assert found.names == ("left",)
    assert found.chips == 16
    assert "is gone" in found.findings[0].reason
    assert "16 chips of on-demand quota" in str(found)
    assert found.sweep() == ()  # it may still be at work: only a confirmed name is deleted
    assert found.sweep(["left"]) == ("left",)
    assert not cloud.list()
    assert cloud.notices == ()


def test_suspended_and_failed_ones_are_listed_and_swept_in_one_call(cloud, fault):
    """Dead queued resources, ours or not, are shown with the quota they hold and deleted by one call."""
    fault("fail-creation", node_id="broken")
    failed = cloud.create("broken", accelerator_type="v4-8")
    spot = cloud.create("spotty", accelerator_type="v4-8", spot=True).wait()
    fault("preempt", node="spotty")
    until(lambda: failed.refresh().is_dead and spot.refresh().is_dead)
    healthy = cloud.create("healthy", accelerator_type="v4-8").wait()
    found = cloud.reclaim()
    assert set(found.names) == {"broken", "spotty"}
    assert all(finding.certain for finding in found.findings)
    assert "<td" in found._repr_html_()
    assert set(found.sweep()) == {"broken", "spotty"}
    assert [status.name for status in cloud.list().statuses] == [healthy.name]


def test_recreating_a_dead_one_frees_its_name_first(cloud, fault):
    """A failed queued resource blocks its name; recreate deletes it, waits until it is gone, asks again."""
    fault("fail-creation", node_id="again-0")
    qr = cloud.create("again", accelerator_type="v4-8", node_count=2, tags=("a",), labels={"team": "x"})
    until(lambda: qr.refresh().is_dead)
    before = cloud.provider
    qr.recreate().wait()
    assert qr.state == "ACTIVE"
    assert qr.status.node_ids == ("again-0", "again-1")
    assert qr.status.labels["team"] == "x"
    assert cloud.provider is before
    made = cloud.create("again", accelerator_type="v4-16", recreate=True).wait()
    assert made.status.accelerator_type == "v4-16"
    assert [entry.accelerator_type for entry in cloud.ledger.entries()] == ["v4-16"]


def test_nothing_is_deleted_for_a_recreation_that_is_refused(cloud):
    """A time to live that is none is told while the old one still runs."""
    cloud.create("kept", accelerator_type="v4-8").wait()
    with pytest.raises(InvalidRequestError, match="is no duration"):
        cloud.create("kept", accelerator_type="v4-8", ttl="8 hours", recreate=True)
    assert cloud.get("kept").state == "ACTIVE"


def test_a_time_to_live_deletes_by_itself(cloud):
    """A queued resource with a time to live is gone when that is over, and it is said."""
    cloud.create("brief", accelerator_type="v4-8", ttl=0.6)
    until(lambda: not cloud.list())
    until(lambda: any("brief" in notice and "time to live" in notice for notice in cloud.notices))
    assert cloud.ledger.entries() == ()


def test_a_time_to_live_is_the_services_too(cloud):
    """The service itself drops a request whose time to live ends before it has capacity; valid-until wins."""
    lived = cloud.create("lived", accelerator_type="v4-8", ttl="6h")
    assert sync(cloud.provider.get_request, lived.name, lived.zone).valid_until_duration == timedelta(hours=6)
    asked = cloud.create("asked", accelerator_type="v4-8", ttl="6h", valid_until_duration="1h")
    assert sync(cloud.provider.get_request, asked.name, asked.zone).valid_until_duration == timedelta(hours=1)


def test_an_idle_limit_counts_from_the_last_use(cloud):
    """touch() keeps a queued resource with an idle limit; without it, it is deleted."""
    qr = cloud.create("idle", accelerator_type="v4-8", idle_limit=1.5)
    end = time.monotonic() + 2.5
    while time.monotonic() < end:
        qr.touch()
        time.sleep(0.1)
    assert qr.refresh().name == "idle"
    until(lambda: not cloud.list())


def test_a_time_to_live_outlasts_its_kernel(cloud, emulator_home):
    """What a killed notebook wanted deleted is deleted at the next connect(), or when its time comes after that."""
    run_notebook(
        emulator_home,
        """
        cloud.create("later", accelerator_type="v4-8", ttl="8h")
        cloud.create("dead", accelerator_type="v4-8", ttl=1)
        """,
    )
    dead = cloud.ledger.find(cloud.project, cloud.zone, "dead")
    later = cloud.ledger.find(cloud.project, cloud.zone, "later")
    until(dead.overdue)
    cloud.ledger.extend(later.request_id, time.time() + 1)
    cloud.close()
    again = connect(emulator=True)
    assert "dead" in again.notices[0]
    assert "time to live is over" in again.notices[0]
    with pytest.raises(NotFoundError):
        again.get("dead")
    until(lambda: not again.list())


def test_a_script_that_ends_says_what_stays(emulator_home, cloud):
    """A process that leaves a queued resource behind names it, with the command that deletes it."""
    code = "import multislice_nb as ms; ms.connect(emulator=True).create('stays', accelerator_type='v4-8')"
    environment = {**os.environ, "MULTISLICE_NB_HOME": str(emulator_home)}
    ended = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert "queued-resources delete stays --zone=us-central2-b --force" in ended.stderr


def test_what_was_asked_for_until_exit_goes_with_its_process(emulator_home, cloud):
    """With `until_exit` a process that ends by an error takes its slices along, and says so."""
    code = (
        "import multislice_nb as ms\n"
        "ms.connect(emulator=True).create('brief', accelerator_type='v4-8', until_exit=True).wait()\n"
        "raise SystemExit('a cell failed')"
    )
    environment = {**os.environ, "MULTISLICE_NB_HOME": str(emulator_home)}
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "a cell failed" in ended.stderr
    assert "brief in us-central2-b is being deleted" in ended.stderr
    until(lambda: not cloud.list())
    assert cloud.reclaim().names == ()
    assert cloud.ledger.entries() == ()


def test_a_jobs_slices_are_nobodys_leftovers(emulator_home, cloud):
    """They need no notebook: the process that ends says whose they are, and no other takes them for forgotten."""
    code = (
        "import multislice_nb as ms; ms.connect(emulator=True).create('train', accelerator_type='v4-8', "
        "labels={'multislice-nb-job': 'train'})"
    )
    environment = {**os.environ, "MULTISLICE_NB_HOME": str(emulator_home)}
    ended = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert "belongs to job train, which goes on and deletes it" in ended.stderr
    assert "--force" not in ended.stderr
    assert not any("train" in notice for notice in cloud.notices)
    assert len(cloud.reclaim()) == 0


def test_somebody_elses_deletion_is_noticed(cloud):
    """What was deleted elsewhere is struck out of the ledger when reclaim looks."""
    cloud.create("elsewhere", accelerator_type="v4-8").wait()

    sync(cloud.provider.delete_queued_resource, "elsewhere", cloud.zone, force=True)
    until(lambda: not cloud.list())
    assert [entry.name for entry in cloud.reclaim().vanished] == ["elsewhere"]
    assert cloud.ledger.entries() == ()


def test_the_ledger_is_private(cloud, emulator_home):
    """The ledger's file can be read by its user alone."""
    assert stat.S_IMODE((emulator_home / "ledger.sqlite3").stat().st_mode) == 0o600


def test_a_process_id_that_came_again_is_not_the_owner(tmp_path, cloud):
    """An owner is a process id with its start: another process of the same id is no owner."""
    from dataclasses import replace

    cloud.create("owned", accelerator_type="v4-8")
    (entry,) = cloud.ledger.entries()
    assert entry.owner_is_alive
    assert replace(entry, owner_started=entry.owner_started - 100).owner_is_alive is False
    assert replace(entry, owner_host="another-machine").owner_is_alive is None


def test_chip_hours_count_the_time_it_was_active(cloud):
    """Usage is chips times the time in ACTIVE, and cost follows the user's price."""
    from multislice_nb.config import Multislice

    Multislice.instance().chip_hour_price = 3600.0
    try:
        qr = cloud.create("paid", accelerator_type="v4-8").wait()
    finally:
        Multislice.instance().chip_hour_price = None
    used = qr.usage
    assert used.chip_hours >= 0
    assert used.cost == pytest.approx(used.chip_hours * 3600)


def test_a_ledger_opens_twice(tmp_path):
    """Two notebooks share the file."""
    first, second = Ledger(tmp_path / "l.sqlite3", "google"), Ledger(tmp_path / "l.sqlite3", "google")
    assert first.entries() == second.entries() == ()
    first.close()
    second.close()


def test_a_ledger_of_an_earlier_version_is_brought_up_to_date(tmp_path):
    """Its entries stay, and belong to no job."""
    path = tmp_path / "l.sqlite3"
    Ledger(path, "google").close()
    with closing(sqlite3.connect(path)) as old:
        old.execute("ALTER TABLE entries DROP COLUMN job")
        old.execute(
            "INSERT INTO entries (request_id, realm, project, zone, name, accelerator_type, node_count, chips, "
            "capacity, asked_at, owner_host, owner_pid, owner_started, used_at) "
            "VALUES ('r', 'google', 'p', 'z', 'before', 'v4-8', 1, 4, 'spot', 1, '', 0, 0, 1)"
        )
        old.commit()
    ledger = Ledger(path, "google")
    assert [(entry.name, entry.job) for entry in ledger.entries()] == [("before", "")]
    ledger.close()
