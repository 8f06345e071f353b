"""Asking in several places and keeping one."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from multislice_nb.errors import InvalidRequestError, UnavailableError

EAST, WEST = "us-central1-a", "us-west4-a"
KIND = {"accelerator_type": "v5litepod-16", "node_count": 2}


def everywhere(cloud):
    """Name and zone of all queued resources that are not on their way out."""
    return {(s.name, s.zone) for s in cloud.list("-").statuses if s.state != "DELETING"}


def test_two_zones_granted_in_the_same_instant_leave_one(cloud):
    """When both zones have capacity at once, one is kept, the other deleted, and none forgotten."""
    qr = cloud.create("both", zones=[EAST, WEST], **KIND)
    assert everywhere(cloud) == {("both", qr.zone)}
    assert [(entry.name, entry.zone) for entry in cloud.ledger.entries()] == [("both", qr.zone)]
    assert qr.wait().state == "ACTIVE"


def test_a_race_is_won_where_there_is_capacity(cloud, fault):
    """The zone that has capacity wins, wherever it stands in the list."""
    fault("stock-out", generation="v5e", zone=EAST)
    qr = cloud.create("west", zones=[EAST, WEST], **KIND)
    assert qr.zone == WEST
    assert everywhere(cloud) == {("west", WEST)}


def test_in_order_the_next_is_tried_when_one_has_nothing(cloud, fault):
    """In order, a zone without capacity is given up before the next one is asked."""
    fault("stock-out", generation="v5e", zone=EAST)
    qr = cloud.create("next", zones=[EAST, WEST], race=False, capacity_timeout=0.6, **KIND)
    assert qr.zone == WEST
    assert everywhere(cloud) == {("next", WEST)}


def test_kinds_of_capacity_can_be_raced_in_one_zone(cloud, fault):
    """On-demand and spot are asked for under two names; the one with quota is kept."""
    fault("quota", generation="v5e", chips=0)
    qr = cloud.create("any", zones=[EAST], capacities=["on-demand", "spot"], **KIND)
    assert (qr.name, qr.status.capacity) == ("any-spot", "spot")
    assert everywhere(cloud) == {("any-spot", EAST)}


def test_nowhere_says_what_became_of_each(cloud, fault):
    """When nobody has capacity all requests are deleted, and the error has a line for each."""
    fault("stock-out", generation="v5e")
    with pytest.raises(UnavailableError) as caught:
        cloud.create("none", zones=[EAST, WEST], capacity_timeout=0.6, **KIND)
    assert f"{EAST} (on-demand): no capacity in time" in caught.value.what
    assert f"{WEST} (on-demand)" in caught.value.what
    assert everywhere(cloud) == set()
    assert cloud.ledger.entries() == ()


def test_an_interrupt_in_a_race_deletes_every_request(cloud, fault):
    """Ctrl-C while racing leaves nothing behind."""
    fault("stock-out", generation="v5e")

    def interrupt():
        end = time.monotonic() + 10
        while len(everywhere(cloud)) < 2 and time.monotonic() < end:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        cloud.create("stop", zones=[EAST, WEST], **KIND)
    thread.join()
    assert everywhere(cloud) == set()
    assert cloud.ledger.entries() == ()


def test_a_kernel_killed_in_a_race_leaves_all_to_reclaim(cloud, fault, emulator_home):
    """The requests of a race whose kernel was killed are all found by the next reclaim."""
    fault("stock-out", generation="v5e")
    code = (
        "import multislice_nb as ms; ms.connect(emulator=True)"
        f".create('gone', accelerator_type='v5litepod-16', node_count=2, zones={[EAST, WEST]!r})"
    )
    environment = {**os.environ, "MULTISLICE_NB_HOME": str(emulator_home)}
    with subprocess.Popen([sys.executable, "-c", code], env=environment) as kernel:
        end = time.monotonic() + 30
        while len(everywhere(cloud)) < 2:
            assert time.monotonic() < end
            time.sleep(0.05)
        kernel.kill()
    found = cloud.reclaim()
    assert {(f.name, f.status.zone) for f in found.findings} == {("gone", EAST), ("gone", WEST)}
    found.sweep(["gone"])
    assert everywhere(cloud) == set()


def test_unknown_capacity_is_refused_before_anything_is_sent(cloud):
    """A kind of capacity that does not exist is refused with those that do."""
    with pytest.raises(InvalidRequestError, match="Capacity 'cheap' is unknown"):
        cloud.create("no", zones=[EAST], capacities=["cheap"], **KIND)
    assert cloud.ledger.entries() == ()


def test_two_hundred_watched_cost_one_list_call_an_interval(cloud, fault):
    """However many queued resources are watched, one list call an interval is made, and the loop stays free."""
    import asyncio

    from multislice_nb._portal import sync

    fault("stock-out", generation="v4")
    calls, beats = [], []
    listing = cloud.provider.list_queued_resources

    async def many():
        made = await asyncio.gather(*(cloud.acreate(f"w{n}", accelerator_type="v4-8") for n in range(200)))

        async def counted(zone):
            calls.append(time.monotonic())
            return await listing(zone)

        async def pulse():
            while True:
                beats.append(time.monotonic())
                await asyncio.sleep(0.01)

        async def look(qr):
            async for status in qr.awatch():
                assert status.is_waiting
                await asyncio.Event().wait()

        cloud.provider.list_queued_resources = counted
        tasks = [asyncio.create_task(look(qr)) for qr in made]
        beat = asyncio.create_task(pulse())
        started = time.monotonic()
        await asyncio.sleep(4)
        lasted = time.monotonic() - started
        for task in (*tasks, beat):
            task.cancel()
        await asyncio.gather(*tasks, beat, return_exceptions=True)
        await asyncio.gather(*(qr.adelete() for qr in made))
        return lasted

    try:
        lasted = sync(many)
    finally:
        del cloud.provider.list_queued_resources
    # The pace starts at 0.1 s and grows to 1 s: never more looks than that, whatever is watched.
    assert 2 <= len(calls) <= 8 + lasted
    # Between any two looks the loop had time for others.
    assert all(any(start < beat < end for beat in beats) for start, end in itertools.pairwise(calls))
