"""What runs in the background, janitor and watch: it goes on, and what goes wrong is told."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from multislice_nb._portal import sync
from multislice_nb.cloud import janitor
from multislice_nb.cloud.ledger import Ledger
from multislice_nb.cloud.watch import Pace
from multislice_nb.errors import (
    CloudError,
    LedgerError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)

if TYPE_CHECKING:
    from tests.cloud.memory_provider import ZONE
else:
    from memory_provider import ZONE  # pytest puts this folder on the path


def raising(error, times=10**6):
    """An API call that fails that often, and counts in `calls`."""
    calls = []

    async def call(*args, **kwargs):
        calls.append(args)
        if len(calls) <= times:
            raise error

    call.calls = calls  # type: ignore[attr-defined]
    return call


def until(condition, seconds=20.0):
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.01)


def overdue(cloud, name):
    """Make something whose time is over, with nobody told."""
    cloud.create(name, accelerator_type="v4-8")
    entry = cloud.ledger.find(cloud.project, ZONE, name)
    cloud.ledger.extend(entry.request_id, time.time() - 1)


def test_a_deletion_that_fails_is_not_tried_at_once(in_memory, monkeypatch):
    """However often the janitor looks, it waits before it tries again, and tells a failure once."""
    cloud = in_memory
    refused = raising(PermissionDeniedError("It may not be deleted.", fix="Ask for it."))
    monkeypatch.setattr(cloud.provider, "delete_queued_resource", refused)
    overdue(cloud, "kept")

    async def look():
        await cloud.janitor.start()
        for _ in range(5):
            cloud.janitor.look_after()
            await asyncio.sleep(0)
        await cloud.janitor.sweep()

    sync(look)
    assert len(refused.calls) == 1
    (notice,) = cloud.notices
    assert "It may not be deleted" in notice


def test_a_deletion_that_failed_is_tried_until_it_succeeds(in_memory, monkeypatch):
    """Whatever it failed with; the same failure is one notice."""
    cloud = in_memory
    monkeypatch.setattr(janitor, "_AGAIN", Pace(first=0.01, last=0.02))
    delete, lost = cloud.provider.delete_queued_resource, raising(RuntimeError("lost"), times=3)

    async def later(*args, **kwargs):
        await lost(*args)
        return await delete(*args, **kwargs)

    monkeypatch.setattr(cloud.provider, "delete_queued_resource", later)
    overdue(cloud, "kept")
    sync(cloud.janitor.start)
    until(lambda: not cloud.ledger.entries())
    first, second = cloud.notices
    assert "RuntimeError('lost')" in first
    assert "was deleted: its time to live is over" in second


def test_one_deletion_that_takes_long_keeps_no_other_from_its_end(in_memory, monkeypatch):
    """Each is deleted by itself."""
    cloud = in_memory
    delete = cloud.provider.delete_queued_resource

    async def slow(name, zone, *, force):
        if name == "slow":
            await asyncio.Event().wait()
        return await delete(name, zone, force=force)

    monkeypatch.setattr(cloud.provider, "delete_queued_resource", slow)
    overdue(cloud, "slow")
    cloud.create("quick", accelerator_type="v4-8", ttl=0.01)
    until(lambda: cloud.list().names == ("slow",))


def test_an_unknown_outcome_leaves_until_exit_and_a_refusal_does_not(in_memory, monkeypatch):
    """What may exist is deleted when the process ends; what was refused is forgotten."""
    cloud = in_memory
    lost = raising(UnavailableError("Nobody answers.", fix="Try again."))
    monkeypatch.setattr(cloud.provider, "create_queued_resource", lost)
    with pytest.raises(UnavailableError):
        cloud.create("lost", accelerator_type="v4-8", until_exit=True)
    assert [entry.request_id for entry in cloud.ledger.entries()] == list(cloud.until_exit)
    monkeypatch.setattr(
        cloud.provider, "create_queued_resource", raising(PermissionDeniedError("No.", fix="Ask."))
    )
    with pytest.raises(PermissionDeniedError):
        cloud.create("no", accelerator_type="v4-8", until_exit=True)
    assert [entry.name for entry in cloud.ledger.entries()] == ["lost"]
    assert len(cloud.until_exit) == 1


def test_whoever_watches_is_told_whatever_went_wrong(in_memory, monkeypatch):
    """An error that nobody foresaw ends the wait too."""
    qr = in_memory.create("seen", accelerator_type="v4-8")
    monkeypatch.setattr(in_memory.provider, "list_queued_resources", raising(RuntimeError("odd")))
    with pytest.raises(RuntimeError, match="odd"):
        next(qr.watch())


def test_a_list_that_is_not_found_is_not_the_end_of_what_is_on_it(in_memory, monkeypatch):
    """A zone that cannot be listed any more is an error: what is there may well be paid for."""
    qr = in_memory.create("seen", accelerator_type="v4-8")
    lost = raising(NotFoundError("There is no such zone.", fix="List them."))
    monkeypatch.setattr(in_memory.provider, "list_queued_resources", lost)
    with pytest.raises(CloudError, match="no such zone") as caught:
        list(qr.watch())
    assert not isinstance(caught.value, NotFoundError)
    assert [entry.name for entry in in_memory.ledger.entries()] == ["seen"]


def test_a_ledger_that_cannot_be_written_says_so(in_memory, tmp_path):
    """Nothing is created unless it can be remembered, and whoever watches is told."""
    qr = in_memory.create("seen", accelerator_type="v4-8")
    in_memory.ledger._open.execute("DROP TABLE changes")
    in_memory.ledger._last.clear()
    with pytest.raises(LedgerError, match=r"l\.sqlite3, cannot be read or written: no such table"):
        next(qr.watch())
    in_memory.ledger._open.execute("DROP TABLE entries")
    with pytest.raises(LedgerError):
        in_memory.create("more", accelerator_type="v4-8")
    assert "more" not in in_memory.provider._kept
    (tmp_path / "damaged").write_text("no database" * 100)
    with pytest.raises(LedgerError, match="not a database"):
        Ledger(tmp_path / "damaged", "google")


def test_closing_lets_go_of_everything_though_a_part_of_it_fails(in_memory, monkeypatch):
    """What cannot be closed keeps nothing else open."""
    in_memory.create("seen", accelerator_type="v4-8")
    next(in_memory.get("seen").watch())
    monkeypatch.setattr(in_memory.provider, "close", raising(RuntimeError("stuck")))
    with pytest.raises(RuntimeError, match="stuck"):
        in_memory.close()
    with pytest.raises(UnavailableError, match="was closed"):
        in_memory.ledger.entries()


@pytest.mark.parametrize("steps", range(4))
def test_news_do_not_keep_the_janitor_from_closing(in_memory, steps):
    """Closing ends it also in the moment in which it is woken."""
    in_memory.create("seen", accelerator_type="v4-8", ttl="1h")

    async def close():
        looking = in_memory.janitor
        looking.look_after()
        for _ in range(steps):
            await asyncio.sleep(0)
        async with asyncio.timeout(20):
            await looking.close()

    sync(close)
