"""Queued resources through their life, on the emulator."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
from datetime import UTC, datetime

import pytest

from multislice_nb.cloud import QueuedResourceRequest, WaitInterrupted, connect
from multislice_nb.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidRequestError,
    NotFoundError,
    QueuedResourceFailedError,
    QuotaExceededError,
    UnavailableError,
    WaitTimeoutError,
)


def test_two_slices_become_active_and_are_named_in_slice_order(cloud):
    """A queued resource of two slices goes to ACTIVE, with every worker's endpoint in order, and away again."""
    seen = []
    qr = cloud.create("two", accelerator_type="v4-16", node_count=2)
    qr.wait(progress=lambda status: seen.append(status.state))
    assert seen[-1] == "ACTIVE"
    assert seen == sorted(seen, key=["CREATING", "WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE"].index)
    nodes = qr.nodes()
    assert [(node.node_id, node.slice_id, node.state) for node in nodes] == [
        ("two-0", 0, "READY"),
        ("two-1", 1, "READY"),
    ]
    assert [len(node.endpoints) for node in nodes] == [2, 2]
    assert len({endpoint for node in nodes for endpoint in node.endpoints}) == 4
    assert len(cloud.guest_attributes("two-0")) == 2
    assert "hostkeys/ssh-ed25519" in cloud.guest_attributes("two-0")[0]
    assert [step.state for step in qr.timeline()][-2:] == ["PROVISIONING", "ACTIVE"]
    qr.delete()
    with pytest.raises(NotFoundError):
        cloud.get("two")
    assert cloud.ledger.entries() == ()


def test_connecting_again_gives_the_same_connection(cloud):
    """connect() may be called in every cell: it opens one connection."""
    assert connect(emulator=True) is cloud


def test_an_asynchronous_caller_has_the_same_methods(cloud):
    """The twins work on any event loop, also where several wait at once."""

    async def both() -> list[str]:
        made = [await cloud.acreate(name, accelerator_type="v4-8") for name in ("one", "other")]
        done = await asyncio.gather(*made)
        states = [qr.status.state for qr in done]
        async for status in done[0].awatch():
            states.append(status.state)
            break
        await asyncio.gather(*(qr.adelete() for qr in done))
        return states

    assert asyncio.run(both()) == ["ACTIVE", "ACTIVE", "ACTIVE"]


def test_a_with_block_deletes_at_its_end(cloud):
    """`with qr:` deletes whatever happens inside."""
    with pytest.raises(RuntimeError), cloud.create("scoped", accelerator_type="v4-8"):
        raise RuntimeError("user code failed")
    with pytest.raises(NotFoundError):
        cloud.get("scoped")


def test_reset_restarts_only_what_is_active(cloud):
    """A queued resource can be reset when it is ACTIVE, and says why not otherwise."""
    qr = cloud.create("again", accelerator_type="v4-8")
    with pytest.raises(FailedPreconditionError, match="only an ACTIVE"):
        qr.reset()
    assert qr.wait().reset().state == "ACTIVE"


def test_deleting_without_force_says_what_to_do(cloud):
    """Without force a queued resource with nodes is kept, and the error names force."""
    qr = cloud.create("kept", accelerator_type="v4-8").wait()
    with pytest.raises(FailedPreconditionError, match="still has nodes") as caught:
        qr.delete(force=False)
    assert "force=True" in caught.value.fix
    assert qr.refresh().is_active


def test_a_taken_name_is_refused_and_the_first_one_stays(cloud):
    """Creating under a taken name raises, and the ledger keeps what was there."""
    first = cloud.create("taken", accelerator_type="v4-8")
    with pytest.raises(AlreadyExistsError):
        cloud.create("taken", accelerator_type="v4-16")
    assert [entry.accelerator_type for entry in cloud.ledger.entries()] == ["v4-8"]
    assert first.refresh().accelerator_type == "v4-8"


def test_bad_requests_are_refused_before_anything_is_sent(cloud):
    """What cannot be is refused with all faults, and nothing is created or written down."""
    with pytest.raises(InvalidRequestError, match="2 faults"):
        cloud.create("bad name", accelerator_type="v4-18")
    assert not cloud.list()
    assert cloud.ledger.entries() == ()


def test_the_capacity_deadline_cancels_the_request(cloud, fault):
    """Giving up on capacity deletes the request, so that no slices come when nobody waits."""
    fault("stock-out", generation="v4")
    qr = cloud.create("never", accelerator_type="v4-8")
    with pytest.raises(WaitTimeoutError, match="was cancelled"):
        qr.wait(capacity_timeout=0.6)
    fault("capacity", generation="v4")
    assert all(status.state == "DELETING" for status in cloud.list().statuses)


def test_capacity_and_booting_have_separate_deadlines(cloud, fault, clock):
    """Each stage has its own deadline, and one that passes while booting keeps the request."""
    fault("stock-out", generation="v4")
    qr = cloud.create("slow", accelerator_type="v4-8")
    release = threading.Timer(1.0, lambda: fault("capacity", generation="v4"))
    release.start()
    qr.wait(boot_timeout=20, capacity_timeout=60)
    release.join()
    assert qr.state == "ACTIVE"
    clock(factor=6)
    late = cloud.create("late", accelerator_type="v4-8")
    with pytest.raises(WaitTimeoutError, match=r"starting the slices passed\. The request is kept"):
        late.wait(boot_timeout=0.2)
    assert late.refresh().state == "PROVISIONING"


def test_the_total_deadline_keeps_the_request_and_says_how_to_delete_it(cloud, fault):
    """A short look leaves the request alone, and the error holds the command that deletes it."""
    fault("stock-out", generation="v4")
    qr = cloud.create("patient", accelerator_type="v4-8")
    with pytest.raises(WaitTimeoutError) as caught:
        qr.wait(timeout=0.5)
    assert (
        "gcloud compute tpus queued-resources delete patient --zone=us-central2-b --force" in caught.value.fix
    )
    assert qr.refresh().state == "WAITING_FOR_RESOURCES"


@pytest.mark.parametrize("cancel", [False, True])
def test_an_interrupt_keeps_or_deletes_the_request_and_says_so(cloud, fault, cancel):
    """Ctrl-C in a wait says what became of the request, which is kept unless asked otherwise."""
    fault("stock-out", generation="v4")
    qr = cloud.create("stopped", accelerator_type="v4-8")
    looks = 0

    def interrupt(_status):
        nonlocal looks
        looks += 1
        if looks == 2:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(WaitInterrupted) as caught:
        qr.wait(progress=interrupt, cancel_on_interrupt=cancel)
    if cancel:
        assert "is being deleted" in caught.value.what
    else:
        assert "%multislice delete stopped" in caught.value.what
        assert qr.refresh().is_waiting


def test_an_old_request_that_says_accepted_is_waited_for(cloud, fault):
    """ACCEPTED, as older requests call waiting, is waiting."""
    fault("queued-state", state="ACCEPTED")
    qr = cloud.create("old", accelerator_type="v4-8")
    assert qr.status.is_waiting
    assert qr.wait().state == "ACTIVE"


def test_a_failed_one_says_which_slices_run_all_the_same(cloud, fault):
    """FAILED with some slices there names them, and advises to delete and try again."""
    fault("fail-creation", node_id="half-1")
    qr = cloud.create("half", accelerator_type="v4-8", node_count=2)
    with pytest.raises(
        QueuedResourceFailedError, match=r"1 of its 2 slices run all the same: half-0"
    ) as caught:
        qr.wait()
    assert "Delete it" in caught.value.fix


def test_a_used_up_quota_is_named_with_its_limit_and_zone(cloud, fault):
    """A quota error says which quota, its limit and where, and keeps the API's words."""
    fault("quota", generation="v4", chips=4)
    qr = cloud.create("much", accelerator_type="v4-16")
    with pytest.raises(
        QueuedResourceFailedError, match=r"quota TPUV4Pod\w+ is used up: the limit is 4 in zone"
    ):
        qr.wait()
    fault("queued-resource-quota", count=1)
    with pytest.raises(QuotaExceededError, match="QueuedResourcesPerProjectPerZone"):
        cloud.create("more", accelerator_type="v4-8")
    assert [entry.name for entry in cloud.ledger.entries()] == ["much"]


def test_a_lost_answer_is_asked_for_again(cloud, fault):
    """503 is retried where that is safe: reads, and a create with the same request id."""
    fault("api-errors", status="UNAVAILABLE", count=2)
    assert cloud.create("held", accelerator_type="v4-8").name == "held"


def test_a_repeated_create_recognises_its_own_work(cloud):
    """409 for a request that this very call had made is no error; for another's it is."""
    request = cloud.request("mine", accelerator_type="v4-8")

    async def send(request_id: str) -> None:
        await cloud.provider.create_queued_resource(request, request_id=request_id, labels={})

    from multislice_nb._portal import sync

    sync(send, "abc")
    sync(send, "abc")
    with pytest.raises(AlreadyExistsError):
        sync(send, "def")


def test_a_reset_is_never_sent_twice(cloud, fault):
    """A reset whose answer is lost raises instead of restarting everything again."""
    qr = cloud.create("once", accelerator_type="v4-8").wait()
    fault("api-errors", status="UNAVAILABLE", count=1, method="ResetQueuedResource")
    with pytest.raises(UnavailableError):
        qr.reset()


def test_the_v2alpha1_delete_that_answers_empty_does_not_raise(cloud):
    """A request of v2alpha1 is created and deleted like any other."""
    request = QueuedResourceRequest(name="alpha", accelerator_type="v4-8", api_version="v2alpha1")
    qr = cloud.create(request).wait()
    qr.delete()
    assert not cloud.list()


def test_watching_tells_every_change_until_it_is_gone(cloud):
    """watch() yields each new state once and ends when the queued resource is gone."""
    qr = cloud.create("seen", accelerator_type="v4-8")
    states = []
    for status in qr.watch():
        states.append(status.state)
        if status.is_active:
            qr.delete(wait=False)
    assert states.count("ACTIVE") == 1
    assert set(states) <= {"WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE", "DELETING"}


def test_a_connection_that_was_closed_says_so(cloud):
    """After close() a call tells to connect again, and connecting gives a new connection."""
    cloud.close()
    cloud.close()
    with pytest.raises(UnavailableError, match="API was closed"):
        cloud.list()
    with pytest.raises(UnavailableError, match="API was closed"):
        cloud.ledger.entries()
    assert connect(emulator=True) is not cloud


def test_closing_while_somebody_watches_forgets_nothing(cloud):
    """Whoever watches is told that the connection was closed, and what they watched stays in the ledger."""
    qr = cloud.create("kept", accelerator_type="v4-8").wait()
    states = qr.watch()
    assert next(states).is_active
    cloud.close()
    with pytest.raises(UnavailableError, match="API was closed"):
        next(states)
    again = connect(emulator=True)
    assert "kept" in {entry.name for entry in again.ledger.entries()}
    again.get("kept").delete()


def test_nothing_is_left_when_python_exits(emulator_home):
    """A process that connected and never closed ends at once, without a word on stderr."""
    code = """
        import multislice_nb as ms
        cloud = ms.connect(emulator=True)
        cloud.list()
        watching = cloud.create("left", accelerator_type="v4-8").watch()
        next(watching)
        cloud.get("left").delete()
    """
    environment = {**os.environ, "MULTISLICE_NB_HOME": str(emulator_home)}
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_service_whose_clock_is_ahead_does_not_turn_the_timeline_round():
    """States stand in the order in which they were seen, none of them in the future."""
    from multislice_nb.testing import emulator

    with emulator(time_factor=1) as control:
        control.advance(7 * 3600)
        steps = connect(emulator=True).create("ahead", accelerator_type="v4-8").wait().timeline()
    assert [step.state for step in steps] == ["WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE"]
    moments = [step.at for step in steps]
    assert moments == sorted(moments)
    assert moments[-1] <= datetime.now(UTC)
