"""Non-blocking handles, nodes watched, and lists."""

from __future__ import annotations

import threading

import pytest

from multislice_nb.errors import NotFoundError


def test_waiting_in_the_background_calls_back(cloud):
    """wait_async returns at once; its future has the result and calls back when it is there."""
    called = threading.Event()
    future = cloud.create("later", accelerator_type="v4-8").wait_async(lambda _future: called.set())
    assert future.result(timeout=30).state == "ACTIVE"
    assert called.wait(5)


def test_a_background_wait_can_be_cancelled(cloud, fault):
    """Cancelling the future stops the wait and leaves the request."""
    fault("stock-out", generation="v4")
    qr = cloud.create("cancelled", accelerator_type="v4-8")
    future = qr.wait_async()
    assert future.cancel()
    assert qr.refresh().is_waiting


def test_a_spot_slice_is_watched_at_node_level(cloud, fault):
    """watch_nodes tells when one slice of several is preempted."""
    qr = cloud.create("spots", accelerator_type="v4-8", node_count=2, spot=True).wait()
    watching = qr.watch_nodes()
    assert [node.state for node in next(watching)] == ["READY", "READY"]
    fault("preempt", node="spots-1")
    for nodes in watching:
        states = {node.node_id: node.state for node in nodes}
        if states.get("spots-1") != "READY":
            break
    assert states.get("spots-1") in {"PREEMPTED", "TERMINATED", "DELETING", None}
    watching.close()


def test_coming_maintenance_is_told(cloud, fault):
    """A node with maintenance ahead says so, with its time."""
    qr = cloud.create("mended", accelerator_type="v4-8").wait()
    assert qr.maintenance() == {}
    thread = threading.Thread(target=fault, args=("maintenance",), kwargs={"node": "mended", "warning": 3.0})
    thread.start()
    seen = None
    for nodes in qr.watch_nodes():
        if nodes and nodes[0].maintenance is not None:
            seen = nodes[0].maintenance
            break
    thread.join()
    assert seen is not None
    assert "maintenance" in str(seen)


def test_a_list_is_found_by_name_and_shown_like_gclouds(cloud):
    """Lists index by name, show gcloud's columns, and say when they are empty."""
    assert str(cloud.list()) == "No queued resources."
    cloud.create("shown", accelerator_type="v4-16", node_count=2)
    found = cloud.list()
    assert found["shown"].status.shape == "2 x v4-16"
    assert str(found).splitlines()[0].split()[:5] == [
        "NAME",
        "ZONE",
        "NODE_COUNT",
        "ACCELERATOR_TYPE",
        "STATE",
    ]
    assert "<th" in found._repr_html_()
    with pytest.raises(NotFoundError, match="no queued resource other"):
        found["other"]


def test_reprs_are_cheap_and_hold_no_secret(cloud):
    """Reprs name things without asking the API, and the token is in none of them."""
    from multislice_nb.emulator import daemon

    token = daemon.ensure_running().token
    qr = cloud.create("plain", accelerator_type="v4-8", startup_script="export SECRET=hunter2").wait()
    texts = [
        repr(cloud),
        str(cloud),
        repr(qr),
        str(qr),
        repr(qr.nodes()),
        repr(cloud.provider),
        cloud._repr_html_(),
    ]
    assert not any(token in text or "hunter2" in text for text in texts)


def test_what_others_created_is_used_like_our_own(cloud):
    """A queued resource that this tool did not create is found, waited for and deleted, and is not in the ledger."""
    from multislice_nb._portal import sync

    request = cloud.request("theirs", accelerator_type="v4-8")

    async def by_hand():
        await cloud.provider.create_queued_resource(request, request_id="theirs", labels={})

    sync(by_hand)
    qr = cloud.get("theirs").wait()
    assert qr.nodes()[0].queued_resource == "theirs"
    assert cloud.ledger.entries() == ()
    assert cloud.reclaim().names == ()
    qr.delete()
    assert not cloud.list()


def test_a_name_that_is_not_there_gets_the_nearest(cloud):
    """A misspelt name is answered with the zone it was looked for in, and with the name that was meant."""
    cloud.create("training", accelerator_type="v4-8")
    with pytest.raises(NotFoundError, match=f"no queued resource traning in {cloud.zone}") as caught:
        cloud.get("traning")
    assert caught.value.fix.startswith("Did you mean training? ")
    with pytest.raises(NotFoundError) as caught:
        cloud.get("elephant")
    assert "Did you mean" not in caught.value.fix


def test_a_key_is_added_to_every_node_once(cloud):
    """authorize_ssh adds a line to each node's ssh-keys and keeps those that are there."""
    qr = cloud.create(
        "keyed", accelerator_type="v4-8", node_count=2, metadata={"ssh-keys": "a:ssh-ed25519 AAAA"}
    ).wait()
    for _ in range(2):
        qr.authorize_ssh("b", "ssh-ed25519 BBBB\n")
    expected = "a:ssh-ed25519 AAAA\nb:ssh-ed25519 BBBB"
    assert [node.metadata["ssh-keys"] for node in qr.nodes()] == [expected, expected]
