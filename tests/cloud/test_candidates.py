"""What is asked for where and how in a search for capacity, and what becomes of all but the winner."""

from __future__ import annotations

import time
from typing import Any

import pytest

from multislice_nb.cloud import QueuedResourceRequest
from multislice_nb.cloud.capacity import candidates
from multislice_nb.errors import InvalidRequestError, PermissionDeniedError, UnavailableError


def asked(zones: Any, capacities: Any, **fields: Any) -> tuple[QueuedResourceRequest, ...]:
    """The candidates of a request."""
    return candidates(
        QueuedResourceRequest(name="any", accelerator_type="v4-8", zone="z-1-a", **fields), zones, capacities
    )


def until(condition, seconds=20.0):
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.01)


@pytest.mark.parametrize("named", [{"reservation": "r"}, {"reservation_host": "projects/p"}])
def test_a_reservation_is_for_reserved_capacity_alone(named):
    """The other kinds are asked for without it."""
    reserved, spot, best = asked((), ("reserved", "spot", "on-demand"), **named)
    assert reserved.reservation == named.get("reservation")
    assert reserved.reservation_host == named.get("reservation_host")
    assert [(other.capacity, other.reservation, other.reservation_host) for other in (spot, best)] == [
        ("spot", None, None),
        ("on-demand", None, None),
    ]


def test_nodes_of_one_zone_have_different_names():
    """Two requests in one zone never want nodes of the same names, whoever named them."""
    prefixed = asked("a-1-a,b-1-b", ["on-demand", "spot"], node_count=2, node_prefix="p")
    assert [(request.zone, request.node_ids[0]) for request in prefixed] == [
        ("a-1-a", "p-0"),
        ("a-1-a", "p-spot-0"),
        ("b-1-b", "p-0"),
        ("b-1-b", "p-spot-0"),
    ]
    assert [request.node_ids for request in asked((), "on-demand,spot", node_id="n")] == [("n",), ("n-spot",)]


@pytest.mark.parametrize("wrong", [5, [5], True, iter(["a-1-a"])])
def test_zones_that_are_no_texts_are_refused(wrong):
    """What is no list of zones, and no text of them, is told."""
    with pytest.raises(InvalidRequestError, match="zones cannot be"):
        asked(wrong, ())


def test_a_guarantee_and_spot_exclude_each_other():
    """Time that is guaranteed cannot be had of spot capacity."""
    with pytest.raises(InvalidRequestError, match="--spot and --min-duration exclude each other"):
        asked((), ["spot"], min_duration="1h")


def test_a_patience_that_is_none_is_refused_before_anything_is_asked_for(in_memory):
    """Nothing is created for a search that cannot begin."""
    with pytest.raises(InvalidRequestError, match="no duration"):
        in_memory.create("no", accelerator_type="v4-8", capacities="on-demand,spot", capacity_timeout="soon")
    assert in_memory.ledger.entries(ended=True) == ()


@pytest.fixture
def undeletable(in_memory, monkeypatch):
    """The connection, with a provider that refuses deletions as often as a test wants."""
    refusals: list[str] = []
    delete = in_memory.provider.delete_queued_resource

    async def refuse(name, zone, *, force):
        if refusals:
            raise PermissionDeniedError(f"{name} may not be {refusals.pop()}.", fix="Ask for it.")
        return await delete(name, zone, force=force)

    monkeypatch.setattr(in_memory.provider, "delete_queued_resource", refuse)
    in_memory.refusals = refusals
    return in_memory


def test_the_winner_is_kept_though_a_loser_cannot_be_deleted(undeletable):
    """The loser is deleted later, and told of while it is not."""
    undeletable.refusals += ["deleted"] * 2
    qr = undeletable.create("any", accelerator_type="v4-8", capacities=["on-demand", "spot"])
    assert (qr.name, qr.state) == ("any", "ACTIVE")
    until(lambda: undeletable.notices)
    (notice,) = undeletable.notices
    assert "any-spot" in notice
    assert "it lost the search for capacity" in notice
    assert "may not be deleted" in notice
    loser = undeletable.ledger.find(undeletable.project, undeletable.zone, "any-spot")
    assert loser.overdue()
    undeletable.janitor._failures.clear()
    undeletable.create("next", accelerator_type="v4-8")  # which makes the janitor look
    until(lambda: undeletable.list().names == ("any", "next"))


def test_a_search_that_finds_nothing_names_what_it_could_not_delete(undeletable, monkeypatch):
    """It is not said that all were deleted."""
    undeletable.refusals += ["deleted"] * 4

    async def never(handle):
        raise UnavailableError(f"{handle.name} has none.", fix="Wait.")

    monkeypatch.setattr("multislice_nb.cloud.capacity._granted", never)
    with pytest.raises(UnavailableError, match=r"(?s)not all its requests were deleted.*Not deleted so far"):
        undeletable.create("any", accelerator_type="v4-8", capacities=["on-demand", "spot"])


@pytest.mark.parametrize("race", [True, False])
def test_what_was_asked_for_without_an_answer_does_not_stay(in_memory, monkeypatch, race):
    """A request whose answer was lost may exist: it is deleted while the search goes on."""
    create = in_memory.provider.create_queued_resource

    async def lost(request, **call):
        await create(request, **call)
        if request.name == "any":
            raise UnavailableError("The answer was lost.", fix="Try again.")

    monkeypatch.setattr(in_memory.provider, "create_queued_resource", lost)
    qr = in_memory.create("any", accelerator_type="v4-8", capacities=["on-demand", "spot"], race=race)
    assert qr.name == "any-spot"
    until(lambda: in_memory.list().names == ("any-spot",))
    until(lambda: len(in_memory.ledger.entries()) == 1)
