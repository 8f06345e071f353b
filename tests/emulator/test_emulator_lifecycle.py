"""Capacity, queue, quota, validity, and what befalls slices."""

from __future__ import annotations

import functools
import subprocess
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from multislice_nb.emulator import processes
from multislice_nb.emulator.control import EmulatorControl

if TYPE_CHECKING:
    from pathlib import Path

    from tests.emulator.emulated_tpu import PARENT, Emulated
else:
    from emulated_tpu import PARENT, Emulated

V4_8 = 4  # chips


@pytest.fixture
def control(emulated: Emulated) -> EmulatorControl:
    """A hand on the emulator."""
    return EmulatorControl(emulated.address)


def _states(emulated: Emulated, *names: str) -> list[str]:
    return [emulated.state(name) for name in names]


def _waiting(emulated: Emulated, name: str) -> None:
    emulated.until(lambda: emulated.state(name) == "WAITING_FOR_RESOURCES")


def test_the_queue_is_in_order_and_gangs_are_whole(emulated: Emulated, control: EmulatorControl) -> None:
    """With chips for one slice, two slices wait with no node made, and a later request does not overtake them."""
    control.capacity("v4", V4_8)
    emulated.create("first", 2)
    _waiting(emulated, "first")
    emulated.create("second")
    _waiting(emulated, "second")
    assert emulated.rest("GET", f"/v2/{PARENT}/nodes").body == {}
    control.capacity("v4", 2 * V4_8)
    emulated.until(lambda: emulated.state("first") == "ACTIVE")
    assert emulated.state("second") == "WAITING_FOR_RESOURCES"
    emulated.delete("first")
    emulated.until(lambda: emulated.state("second") == "ACTIVE")


def test_deleting_the_first_in_line_lets_the_next_one_through(
    emulated: Emulated, control: EmulatorControl
) -> None:
    """A request that is given up blocks nobody."""
    control.capacity("v4", V4_8)
    emulated.create("first", 2)
    emulated.create("second")
    _waiting(emulated, "first")
    emulated.delete("first")
    emulated.until(lambda: emulated.state("second") == "ACTIVE")


def test_a_request_ends_with_its_validity(emulated: Emulated, control: EmulatorControl) -> None:
    """Valid for six hours, a request without capacity FAILS when those are over, and can then be deleted."""
    control.stock_out("v4")
    emulated.create("short", 2, queueingPolicy={"validUntilDuration": "21600s"})
    _waiting(emulated, "short")
    control.advance(21_599)
    assert emulated.state("short") == "WAITING_FOR_RESOURCES"
    control.advance(2)
    emulated.until(lambda: emulated.state("short") == "FAILED")
    assert "validity" in emulated.get("short")["state"]["failedData"]["error"]["message"]
    assert emulated.rest("DELETE", f"/v2/{PARENT}/queuedResources/short").status == 200


def test_a_request_waits_for_its_time(emulated: Emulated, control: EmulatorControl) -> None:
    """valid-after holds a request back without blocking those behind it."""
    emulated.create("later", queueingPolicy={"validAfterDuration": "3600s"})
    _waiting(emulated, "later")
    emulated.active("now")
    assert emulated.state("later") == "WAITING_FOR_RESOURCES"
    control.advance(3601)
    emulated.until(lambda: emulated.state("later") == "ACTIVE")


def test_quotas(emulated: Emulated, control: EmulatorControl) -> None:
    """Queued resources count against their own quota; chips against that of their kind."""
    control.inject("queued-resource-quota", count=1)
    control.inject("quota", generation="v4", tier="spot", chips=0)
    emulated.active("one")
    refused = emulated.create("two")
    assert (refused.status, refused.body["error"]["status"]) == (429, "RESOURCE_EXHAUSTED")
    assert refused.body["error"]["details"][0]["@type"].endswith("QuotaFailure")
    control.inject("queued-resource-quota", count=None)
    emulated.create("spot", spot={})
    emulated.until(lambda: emulated.state("spot") == "FAILED")
    state = emulated.get("spot")["state"]
    assert state["stateInitiator"] == "SERVICE"
    assert state["failedData"]["error"]["code"] == 8


def test_reservations(emulated: Emulated, control: EmulatorControl) -> None:
    """A reservation must exist, and its chips are apart from everybody's."""
    name = f"{PARENT}/reservations/mine"
    refused = emulated.create("reserved", guaranteed={}, reservationName=name)
    assert refused.body["error"]["status"] == "NOT_FOUND"
    control.inject("reservation", name=name, chips=V4_8)
    control.stock_out("v4")
    emulated.active("reserved", guaranteed={}, reservationName=name)
    assert emulated.node("reserved-0")["schedulingConfig"]["reserved"] is True
    emulated.create("more", guaranteed={}, reservationName=name)
    _waiting(emulated, "more")


def test_a_slice_that_fails_makes_the_whole_failed(emulated: Emulated, control: EmulatorControl) -> None:
    """FAILED while some slices are READY, as documented; the rest can be deleted without force."""
    control.inject("fail-creation", node_id="broken-1")
    emulated.create("broken", 2)
    emulated.until(lambda: emulated.state("broken") == "FAILED")
    assert emulated.node("broken-0")["state"] == "READY"
    assert emulated.node("broken-1")["state"] == "TERMINATED"
    assert "could not be created" in emulated.get("broken")["state"]["failedData"]["error"]["message"]


def test_the_older_name_of_the_queue(emulated: Emulated, control: EmulatorControl) -> None:
    """A waiting request can be called ACCEPTED, as the service used to."""
    control.inject("queued-state", state="ACCEPTED")
    control.stock_out("v4")
    emulated.create("old")
    emulated.until(lambda: emulated.state("old") == "ACCEPTED")


def test_a_single_spot_slice_is_suspended_when_preempted(
    emulated: Emulated, control: EmulatorControl
) -> None:
    """The node is PREEMPTED, the queued resource SUSPENDED by the service, and it is deleted without force."""
    emulated.active("cheap", spot={})
    control.preempt("cheap-0")
    emulated.until(lambda: emulated.state("cheap") == "SUSPENDED")
    assert emulated.get("cheap")["state"]["stateInitiator"] == "SERVICE"
    assert emulated.node("cheap-0")["state"] == "PREEMPTED"
    assert emulated.rest("DELETE", f"/v2/{PARENT}/queuedResources/cheap").status == 200


def test_on_demand_slices_are_not_preempted(emulated: Emulated) -> None:
    """Preempting what is not spot is refused, and so is what is not there."""
    emulated.active("safe")
    assert emulated.fault("preempt", node="safe-0").body["error"]["status"] == "FAILED_PRECONDITION"
    assert emulated.fault("preempt", node="nobody").body["error"]["status"] == "NOT_FOUND"


@pytest.mark.parametrize("misfortune", ["preempt", "hardware-failure"])
def test_a_lost_slice_is_replaced_and_the_others_reset(
    emulated: Emulated, control: EmulatorControl, misfortune: str
) -> None:
    """Under a running startup script: a new slice comes, the other one restarts, and both scripts run again."""
    script = "touch $HOME/mine; echo attempt $MULTISLICE_NB_ATTEMPT; ls $HOME/kept; sleep 306"
    emulated.active("job", 2, spot={}, node={"metadata": {"startup-script": script}})
    for node in ("job-0", "job-1"):
        emulated.until(functools.partial(_ran, emulated, node, 1))
    emulated.ssh("job-0", "touch kept")
    lost = emulated.node("job-1")
    control.inject(misfortune, node="job-1")
    for node in ("job-0", "job-1"):
        emulated.until(functools.partial(_ran, emulated, node, 2))
    replaced = emulated.until(lambda: _ready(emulated, "job-1"))
    assert replaced["id"] != lost["id"]
    assert replaced["networkEndpoints"][0]["ipAddress"] != lost["networkEndpoints"][0]["ipAddress"]
    assert "boot 1, attempt 2" in control.startup_output("job-1")
    assert "boot 2, attempt 2" in control.startup_output("job-0")
    assert emulated.state("job") == "ACTIVE"
    assert emulated.ssh("job-0", "ls; pgrep -fc '^sleep 306'").stdout == b"kept\nmine\n2\n"


def test_a_repair_waits_for_capacity(emulated: Emulated, control: EmulatorControl) -> None:
    """With the stock out, a lost slice comes back only when there are chips again."""
    emulated.active("job", 2, spot={})
    control.stock_out("v4")
    before = emulated.node("job-0")["createTime"]
    control.preempt("job-1")
    assert emulated.node("job-1")["state"] == "PREEMPTED"
    assert emulated.node("job-0")["state"] == "READY"
    control.capacity("v4", None)
    emulated.until(lambda: _ready(emulated, "job-1"))
    assert emulated.node("job-0")["createTime"] == before


def test_maintenance_warns_first(emulated: Emulated, control: EmulatorControl) -> None:
    """The VM's metadata and the node's health say what is coming; afterwards both are as before."""
    emulated.active("kept", 2)
    from threading import Thread

    event = Thread(target=control.maintenance, args=("kept-0",), kwargs={"warning": 1.5})
    event.start()
    emulated.until(lambda: emulated.node("kept-0").get("health") == "UNHEALTHY_MAINTENANCE")
    url = "http://$GCE_METADATA_HOST/computeMetadata/v1/instance/maintenance-event"
    told = emulated.ssh("kept-0", f"curl -s -H Metadata-Flavor:Google {url}").stdout
    event.join(30)
    assert told == b"TERMINATE_ON_HOST_MAINTENANCE"
    node = emulated.node("kept-0")
    assert (node["state"], node["health"]) == ("READY", "HEALTHY")
    assert "upcomingMaintenance" not in node


def test_a_preempted_vm_is_told_before(emulated: Emulated, control: EmulatorControl) -> None:
    """With a warning, processes get SIGTERM and time to save their work."""
    script = "trap 'echo saving; exit 0' TERM; echo working; while :; do sleep 0.1; done"
    emulated.active("cheap", spot={}, node={"metadata": {"startup-script": script}})
    emulated.until(lambda: "working" in control.startup_output("cheap-0"))
    control.preempt("cheap-0", warning=1.0)
    assert "saving" in control.startup_output("cheap-0")


def test_bursts_of_errors(emulated: Emulated, control: EmulatorControl) -> None:
    """So many calls are refused with the asked status, then the service is as before."""
    for status, code in (("RESOURCE_EXHAUSTED", 429), ("UNAVAILABLE", 503)):
        control.api_errors(status, 2, "ListNodes")
        path = f"/v2/{PARENT}/nodes"
        assert [emulated.rest("GET", path).status for _ in range(3)] == [code, code, 200]


def test_dropped_operations_end_when_cancelled(emulated: Emulated, control: EmulatorControl) -> None:
    """An operation that never says it is done has done its work, and can be cancelled."""
    control.inject("dropped-operations", count=1)
    operation = emulated.create("lost").body
    emulated.until(lambda: emulated.state("lost") == "ACTIVE")
    path = f"/v2/{operation['name']}"
    assert "done" not in emulated.rest("GET", path).body
    emulated.rest("POST", f"{path}:cancel", {})
    assert emulated.rest("GET", path).body["error"]["code"] == 1


def test_faults_of_a_vm(emulated: Emulated, tmp_path: Path) -> None:
    """SSH refused, host key changed, disk full, hanging, for open connections too: each happens and is taken back."""
    emulated.active("vm")
    attributes = f"/v2/{PARENT}/nodes/vm-0:getGuestAttributes"

    def key() -> Any:
        items = emulated.rest("POST", attributes, {"queryPath": "hostkeys/"}).body["guestAttributes"][0]
        return items["queryValue"]["items"][0]["value"]

    emulated.fault("ssh-refused", node="vm-0")
    assert b"refused" in emulated.ssh("vm-0", "true").stderr
    emulated.fault("ssh-refused", node="vm-0", on=False)
    assert emulated.ssh("vm-0", "true").returncode == 0
    before = key()
    emulated.fault("host-key-changed", node="vm-0")
    assert key() != before
    emulated.fault("disk-full", node="vm-0")
    assert emulated.ssh("vm-0", "echo too much > file; cat file").stdout == b""
    emulated.fault("disk-full", node="vm-0", on=False)
    assert emulated.ssh("vm-0", "echo fits > file; cat file").stdout == b"fits\n"
    emulated.ssh("vm-0", "setsid sleep 307 >/dev/null 2>&1 &")
    master = [*emulated.ssh_argv("vm-0"), "-S", str(tmp_path / "s"), emulated.where("vm-0")]
    subprocess.run([*master, "-fNM"], check=True, timeout=60)
    emulated.fault("hang", node="vm-0")
    open_already = subprocess.Popen([*master, "touch ran; cat"], stdin=subprocess.PIPE)
    folder = emulated.address.home / "vms/vm/vm-0/0"
    emulated.until(lambda: _stopped(folder, "touch ran; cat"))
    assert not (folder / "home/ran").exists()
    argv = [*emulated.ssh_argv("vm-0"), emulated.where("vm-0"), "true"]
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run(argv, capture_output=True, timeout=1.5, check=False)
    emulated.fault("hang", node="vm-0", on=False)
    assert emulated.ssh("vm-0", "ps -o stat= -p $(pgrep -f '^sleep 307')").stdout[:1] == b"S"
    open_already.communicate(timeout=60)
    assert (open_already.returncode, (folder / "home/ran").exists()) == (0, True)
    subprocess.run([*master, "-O", "exit"], check=True, capture_output=True, timeout=60)
    emulated.fault("hang", node="vm-0")
    assert emulated.finished(emulated.rest("POST", f"/v2/{PARENT}/queuedResources/vm:reset", {}).body)["done"]
    assert emulated.ssh("vm-0", "echo back").stdout == b"back\n"


def test_wrong_faults_are_refused(emulated: Emulated, control: EmulatorControl) -> None:
    """An unknown fault, a missing or a wrong parameter: an error that says so, and nothing happens."""
    for body in (
        {"kind": "earthquake"},
        {"kind": "preempt"},
        {"kind": "preempt", "node": 7},
        {"kind": "preempt", "node": "x", "colour": "red"},
        {"kind": "capacity", "generation": "v9"},
        {"kind": "api-errors", "status": "TIRED"},
        {"kind": "api-errors", "count": 0},
        {},
    ):
        answer = emulated.rest("POST", "/emulator/v1/faults", body)
        assert answer.body["error"]["status"] in {"INVALID_ARGUMENT", "NOT_FOUND"}
    assert "preempt" in control.fault_kinds()


def test_deleting_the_last_node_suspends(emulated: Emulated) -> None:
    """A queued resource whose nodes were deleted one by one is SUSPENDED by its user."""
    emulated.active("shrunk", 2)
    for node in ("shrunk-0", "shrunk-1"):
        emulated.finished(emulated.rest("DELETE", f"/v2/{PARENT}/nodes/{node}").body)
    emulated.until(lambda: emulated.state("shrunk") == "SUSPENDED")
    assert emulated.get("shrunk")["state"]["stateInitiator"] == "USER"
    assert emulated.rest("DELETE", f"/v2/{PARENT}/queuedResources/shrunk").status == 200


def _stopped(folder: Path, command: str) -> bool:
    """Whether a VM's process that has a command still to run is stopped."""
    found = [p for p in processes.find(["no-such-mark"], [folder]) if command in p.cmdline()]
    return any(p.status() == psutil.STATUS_STOPPED for p in found)


def _ran(emulated: Emulated, node: str, attempt: int) -> bool:
    answer = emulated.rest("GET", f"/emulator/v1/startupOutput?node={node}")
    return f"attempt {attempt}" in str(answer.body.get("output", ""))


def _ready(emulated: Emulated, node: str) -> Any:
    document = emulated.node(node)
    return document if document.get("state") == "READY" else None
