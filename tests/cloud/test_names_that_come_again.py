"""A name that is used again is another queued resource: what the ledger has of the first is not about it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from multislice_nb._portal import sync
from multislice_nb.cloud.janitor import Janitor
from multislice_nb.cloud.ledger import Entry

if TYPE_CHECKING:
    from tests.cloud.memory_provider import ZONE
else:
    from memory_provider import ZONE  # pytest puts this folder on the path


def old_entry(cloud, name, **fields):
    """Enter a request of that name whose time to live is over."""
    past = time.time() - 60
    values: dict[str, Any] = {
        "request_id": f"old-{name}",
        "realm": "google",
        "project": cloud.project,
        "zone": ZONE,
        "name": name,
        "accelerator_type": "v4-8",
        "node_count": 1,
        "chips": 4,
        "capacity": "on-demand",
        "asked_at": past,
        "expires_at": past + 1,
        **fields,
    }
    return cloud.ledger.enter(Entry(**values))


def by_hand(cloud, name):
    """Create something of that name past the ledger."""
    request = cloud.request(name, accelerator_type="v4-8")
    sync(cloud.provider.create_queued_resource, request, request_id=f"by-hand-{name}", labels={})


def test_an_old_time_to_live_ends_nothing_that_is_new(in_memory):
    """What got the name of something overdue stays, and the entry of the old one is closed."""
    cloud = in_memory
    old_entry(cloud, "same")
    old_entry(cloud, "gone")
    by_hand(cloud, "same")
    assert sync(Janitor(cloud.provider, cloud.ledger).sweep) == ()
    assert cloud.list().names == ("same",)
    assert cloud.ledger.entries() == ()


def test_what_is_overdue_itself_is_deleted(in_memory):
    """The janitor knows its own by the request's id."""
    cloud = in_memory
    cloud.create("same", accelerator_type="v4-8")
    (entry,) = cloud.ledger.entries()
    cloud.ledger.extend(entry.request_id, time.time() - 1)
    janitor = Janitor(cloud.provider, cloud.ledger)
    assert sync(janitor.sweep) == ("same",)
    assert "time to live is over" in janitor.notices[0]


def test_creating_closes_the_entries_of_what_had_the_name(in_memory):
    """Something that was deleted elsewhere passes neither its time to live nor its use on to the next of its name."""
    cloud = in_memory
    old_entry(cloud, "same", chip_hour_price=5.0)
    qr = cloud.create("same", accelerator_type="v4-8")
    (entry,) = cloud.ledger.entries()
    assert entry.is_of(qr.status)
    assert entry.expires_at is None
    assert qr.usage.cost is None


def test_an_entry_that_was_closed_while_it_was_created_is_open_again(in_memory):
    """Before it is there, another notebook may take it for gone: its creation is the last word."""
    cloud = in_memory
    create = cloud.provider.create_queued_resource

    async def meanwhile(*args, **kwargs):
        await cloud.areclaim()
        await create(*args, **kwargs)

    cloud.provider.create_queued_resource = meanwhile
    cloud.create("new", accelerator_type="v4-8")
    assert [entry.name for entry in cloud.ledger.entries()] == ["new"]


def test_reclaim_holds_no_old_entry_against_what_is_new(in_memory):
    """A new one is not overdue because one of its name was; and what was found is not deleted in its name."""
    cloud = in_memory
    old_entry(cloud, "same")
    by_hand(cloud, "same")
    assert cloud.reclaim().names == ()
    cloud.create("mine", accelerator_type="v4-8")
    (entry,) = cloud.ledger.entries()
    cloud.ledger.extend(entry.request_id, time.time() - 1)
    found = cloud.reclaim()
    assert found.names == ("mine",)
    cloud.get("mine").delete()
    by_hand(cloud, "mine")
    assert found.sweep() == ("mine",)
    assert set(cloud.list().names) == {"same", "mine"}


@pytest.mark.parametrize("used", [True, False])
def test_use_counts_for_what_is_used_alone(in_memory, used):
    """touch() moves the idle limit of its own entry."""
    cloud = in_memory
    qr = cloud.create("idle", accelerator_type="v4-8", idle_limit="1h")
    (before,) = cloud.ledger.entries()
    if used:
        qr.touch()
    else:
        cloud.provider._kept.clear()
        by_hand(cloud, "idle")
        cloud.get("idle").touch()
    (after,) = cloud.ledger.entries()
    assert (after.used_at > before.used_at) is used
