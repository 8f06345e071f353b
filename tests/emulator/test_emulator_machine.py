"""Random sequences of calls and faults from several clients at once find no impossible state."""

from __future__ import annotations

import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from multislice_nb.emulator import processes

if TYPE_CHECKING:
    from multislice_nb.emulator.control import EmulatorControl
    from tests.emulator.emulated_tpu import PARENT, Answer, Emulated
else:
    from emulated_tpu import PARENT, Emulated

NAMES = ("one", "two", "three")
# Which states of nodes each state of a queued resource allows. Deleting a node is its user's own affair.
NO_NODES = {"CREATING", "WAITING_FOR_RESOURCES"}
NODE_STATES = {"CREATING", "READY", "RESTARTING", "REPAIRING", "PREEMPTED", "TERMINATED", "DELETING"}
STATES = NO_NODES | {"PROVISIONING", "ACTIVE", "FAILED", "SUSPENDING", "SUSPENDED", "DELETING"}
CODES = {200, 400, 404, 409, 429, 503}
names = st.sampled_from(NAMES)
counts = st.integers(1, 3)


class Machine(RuleBasedStateMachine):
    """Three names, three clients, four chips to a slice."""

    control: EmulatorControl

    @initialize()
    def begin(self) -> None:
        """Start from nothing, at a fast pace that still lets states be seen."""
        self.emulated = Emulated(self.control.address)
        self.clients = ThreadPoolExecutor(3)
        self.counts: dict[str, int] = {}
        self.trimmed: set[str] = set()

    def at_once(self, *calls: Any) -> list[Answer]:
        """Make calls from several clients at the same time."""
        answers = [running.result() for running in [self.clients.submit(*call) for call in calls]]
        assert all(answer.status in CODES for answer in answers), answers
        return answers

    @rule(name=names, count=counts, spot=st.booleans(), script=st.booleans())
    def create(self, name: str, count: int, spot: bool, script: bool) -> None:
        """Three clients want the same name: one gets it at most, and one does if it was free."""
        node = {"metadata": {"startup-script": "sleep 308"}} if script else {}
        extra: dict[str, Any] = {"spot": {}} if spot else {}

        def ask() -> Answer:
            return self.emulated.create(name, count, node=node, **extra)

        answers = self.at_once(*[(ask,)] * 3)
        won = [answer for answer in answers if answer.status == 200]
        assert len(won) <= 1
        if won:
            self.counts[name] = count
            self.trimmed.discard(name)
            assert "response" in self.emulated.finished(won[0].body)
        elif name not in self.counts:
            assert all(answer.status in {429, 503} for answer in answers)

    @rule(name=names, force=st.booleans())
    def delete(self, name: str, force: bool) -> None:
        """Two clients delete the same: both are told the same, and then it is gone."""
        path = f"/v2/{PARENT}/queuedResources/{name}?force={force}"
        answers = self.at_once(*[(self.emulated.rest, "DELETE", path)] * 2)
        done = [self.emulated.finished(answer.body) for answer in answers if answer.status == 200]
        assert all("response" in operation for operation in done)
        if done:
            assert name in self.counts
            del self.counts[name]
            self.emulated.until(lambda: self.emulated.state(name) == "GONE")

    @rule(name=names, index=st.integers(0, 2))
    def delete_node(self, name: str, index: int) -> None:
        """A user deletes one slice."""
        [answer] = self.at_once((self.emulated.rest, "DELETE", f"/v2/{PARENT}/nodes/{name}-{index}"))
        if answer.status == 200:
            self.trimmed.add(name)
            assert "response" in self.emulated.finished(answer.body)

    @rule(name=names, other=names)
    def reset(self, name: str, other: str) -> None:
        """Two resets, perhaps of the same."""
        paths = [f"/v2/{PARENT}/queuedResources/{which}:reset" for which in (name, other)]
        for answer in self.at_once(*[(self.emulated.rest, "POST", path, {}) for path in paths]):
            if answer.status == 200:
                assert self.emulated.finished(answer.body)["done"]

    @rule(
        pick=st.integers(0, 8),
        kind=st.sampled_from(["preempt", "hardware-failure", "maintenance"]),
    )
    def misfortune(self, pick: int, kind: str) -> None:
        """Something befalls a slice that is there while another client looks at it."""
        nodes = sorted(self.control.status()["nodes"])
        if not nodes:
            return
        node = nodes[pick % len(nodes)]

        def befall() -> Answer:
            return self.emulated.fault(kind, node=node)

        self.at_once((befall,), (self.emulated.rest, "GET", f"/v2/{node}"))

    @rule(chips=st.sampled_from([0, 4, 8, None]))
    def capacity(self, chips: int | None) -> None:
        """The zone grows or shrinks."""
        self.emulated.fault("capacity", generation="v4", chips=chips)

    @rule(status=st.sampled_from(["UNAVAILABLE", "RESOURCE_EXHAUSTED"]), count=st.integers(1, 3))
    def burst(self, status: str, count: int) -> None:
        """The next creations are refused."""
        self.emulated.fault("api-errors", status=status, count=count, method="CreateQueuedResource")

    @rule(node=st.sampled_from([f"{name}-{index}" for name in NAMES for index in range(3)]))
    def fail_creation(self, node: str) -> None:
        """A slice will fail when it is made."""
        self.emulated.fault("fail-creation", node_id=node)

    @rule()
    @precondition(lambda self: self.counts)
    def settle(self) -> None:
        """Let what is under way arrive."""
        self.emulated.until(self._settled)

    def _settled(self) -> bool:
        status = self.control.status()
        states = set(status["queuedResources"].values())
        return not states & {"CREATING", "PROVISIONING", "SUSPENDING", "DELETING"}

    @invariant()
    def possible(self) -> None:
        """No request is lost, no state is impossible, no gang is partial."""
        if not hasattr(self, "emulated"):
            return
        status = self.control.status()
        queued = {name.rsplit("/", 1)[1]: state for name, state in status["queuedResources"].items()}
        nodes = {name.rsplit("/", 1)[1]: state for name, state in status["nodes"].items()}
        assert set(queued) == set(self.counts)
        assert set(queued.values()) <= STATES
        assert set(nodes.values()) <= NODE_STATES
        for name, state in queued.items():
            own = [nodes[node] for node in nodes if node.rsplit("-", 1)[0] == name]
            if state in NO_NODES:
                assert not own
            elif state in {"PROVISIONING", "ACTIVE"} and name not in self.trimmed:
                assert len(own) == self.counts[name]
        self.emulated.until(self._accounted)

    def _accounted(self) -> bool:
        """Every chip in use is a slice's; chips that were granted this moment are one's in the next."""
        status = self.control.status()
        return bool(sum(status["chipsUsed"].values()) <= 4 * len(status["nodes"]))

    def teardown(self) -> None:
        """At the end nothing is left running."""
        if not hasattr(self, "emulated"):
            return
        self.control.clear_faults()
        for name in list(self.counts):
            self.emulated.delete(name)
        status = self.control.status()
        assert (status["vms"], status["chipsUsed"], status["nodes"]) == (0, {}, {})
        assert not processes.find(["no-such-mark"], [self.control.address.home / "vms"])
        self.clients.shutdown()


def test_random_calls_and_faults_from_several_clients() -> None:
    """See `Machine.possible` for what holds after each step, and `Machine.teardown` for what holds at the end."""
    from multislice_nb.testing import emulator

    home = Path(tempfile.mkdtemp(prefix="machine-"))
    try:
        with emulator(time_factor=0.05, home=home) as control:
            Machine.control = control
            run_state_machine_as_test(Machine, settings=settings(max_examples=25, stateful_step_count=20))
            assert "Traceback" not in (control.address.home / "daemon.log").read_text()
    finally:
        shutil.rmtree(home, ignore_errors=True)
