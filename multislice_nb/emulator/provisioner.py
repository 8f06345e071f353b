"""A queued resource's life, from the request to the end of everything it made."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from multislice_nb.emulator import clock as pace
from multislice_nb.emulator.clock import Clock, timestamp
from multislice_nb.emulator.model import NodeRecord, QueuedRecord, Store, copy
from multislice_nb.emulator.requests import admission_of, expand
from multislice_nb.emulator.rpc import ApiError, Json, already_exists, failed_precondition

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from multislice_nb.emulator.admission import Admissions
    from multislice_nb.emulator.names import Parent
    from multislice_nb.emulator.slices import Slices

log = logging.getLogger(__name__)

# Deleted without force from these (the client's documentation), and while nothing has been made yet.
_DELETABLE = {"ACCEPTED", "FAILED", "SUSPENDED", "WAITING_FOR_RESOURCES", "CREATING"}


class Provisioner:
    """Turns requests into slices.

    Attributes:
        queued_state: The state of a request in the queue; older behaviour of the service is "ACCEPTED".
        failing_slices: Slices to fail while they are created, by node id; a fault.
    """

    def __init__(self, store: Store, clock: Clock, slices: Slices, admissions: Admissions) -> None:
        self._store = store
        self._clock = clock
        self._slices = slices
        self._admissions = admissions
        self.queued_state = "WAITING_FOR_RESOURCES"
        self.failing_slices: dict[str, ApiError] = {}

    # Creation

    def request(self, parent: Parent, queued_resource_id: str, body: Json) -> QueuedRecord:
        """Take a request in, checked whole, in CREATING.

        Raises:
            ApiError: It is wrong, exists, or is beyond the quota.
        """
        name = parent.child("queuedResources", queued_resource_id)
        specs = expand(body, parent, queued_resource_id)
        if name in self._store.queued:
            raise already_exists(name)
        claimed = self._store.claimed_node_names()
        for spec in specs:
            if (node := parent.child("nodes", spec.node_id)) in claimed:
                raise already_exists(node)
        admission = admission_of(body, specs, parent, self._clock.now())
        self._admissions.check_reservation(admission)
        siblings = [record for record in self._store.queued.values() if record.parent == parent]
        self._admissions.check_count(len(siblings), parent.location)
        data = {key: value for key, value in copy(body).items() if key not in {"state", "createTime", "name"}}
        data["name"] = name
        data["createTime"] = timestamp(self._clock.now())
        data["tpu"] = {"nodeSpec": [_spec_document(parent, spec.node_id, spec.node) for spec in specs]}
        record = QueuedRecord(parent, queued_resource_id, specs, data, admission)
        record.set_state("CREATING")
        self._store.queued[name] = record
        return record

    async def accept(self, record: QueuedRecord) -> tuple[str, Json]:
        """Queue the request and let it run; the work of the create operation."""
        await self._clock.step(pace.ACCEPT)
        if record.state == "CREATING":
            record.set_state(self.queued_state)
            self._follow(record, self._provision(record))
        return "QueuedResource", record.data

    def _follow(self, record: QueuedRecord, work: Coroutine[object, object, None]) -> None:
        record.task = asyncio.get_running_loop().create_task(self._or_fail(record, work))

    async def _or_fail(self, record: QueuedRecord, work: Coroutine[object, object, None]) -> None:
        """Do work; what nobody expected makes the queued resource FAILED, so that nobody waits for it for ever."""
        try:
            await work
        except Exception as error:
            log.exception("work on %s failed", record.name)
            reason = ApiError("INTERNAL", f"The emulator failed: {type(error).__name__}: {error}")
            for node in record.slices():
                if node.state == "CREATING":
                    node.state = "TERMINATED"
                    node.data["healthDescription"] = reason.message
            record.set_state("FAILED", initiator="SERVICE", error=reason.as_status())

    async def _provision(self, record: QueuedRecord) -> None:
        admission = record.admission
        try:
            held = [other.admission for other in self._holding(record)]
            self._admissions.check_chips(admission, held)
            await self._clock.step(pace.WAIT_FOR_RESOURCES)
            await self._admissions.wait(admission)
        except ApiError as refused:
            record.set_state("FAILED", initiator="SERVICE", error=refused.as_status())
            return
        record.set_state("PROVISIONING")
        try:
            nodes = [
                self._slices.make(record.parent, spec, admission, record, index)
                for index, spec in enumerate(record.specs)
            ]
        except OSError:
            made = sum(node.spec.accelerator.chips for node in record.slices())
            self._admissions.release(admission, admission.chips - made)
            raise
        await self._clock.step(pace.CREATE_NODE)
        await self._finish_creation(record, nodes)

    async def _finish_creation(self, record: QueuedRecord, nodes: list[NodeRecord]) -> None:
        failures = {}
        for node in nodes:
            error = self.failing_slices.pop(node.spec.node_id, None)
            if error is not None:
                failures[node] = error
        await self._slices.boot([node for node in nodes if node not in failures], during="CREATING")
        for node, error in failures.items():
            node.state = "TERMINATED"
            node.data["healthDescription"] = error.message
            self._slices.free_chips(node)
        if failures:
            error = next(iter(failures.values()))
            record.set_state("FAILED", initiator="SERVICE", error=error.as_status())
        else:
            record.set_state("ACTIVE")

    def _holding(self, record: QueuedRecord) -> list[QueuedRecord]:
        return [
            other
            for other in self._store.queued.values()
            if other is not record
            and other.parent == record.parent
            and other.state in {"PROVISIONING", "ACTIVE", "SUSPENDING", "SUSPENDED", "DELETING"}
        ]

    # Reset

    def check_reset(self, record: QueuedRecord) -> None:
        """Refuse to reset what is not ACTIVE.

        Raises:
            ApiError: FAILED_PRECONDITION.
        """
        if record.state != "ACTIVE":
            text = f"Queued resource {record.name} is {record.state}; only an ACTIVE one can be reset."
            raise failed_precondition(record.name, text)

    async def reset(self, record: QueuedRecord) -> tuple[str, Json]:
        """Restart all slices; the work of the reset operation."""
        async with record.lock:
            self.check_reset(record)
            await self._slices.restart([node for node in record.slices() if node.state == "READY"])
        return "QueuedResource", record.data

    # Deletion

    def check_deletion(self, record: QueuedRecord, *, force: bool) -> None:
        """Refuse to delete nodes that were not meant to be deleted.

        Raises:
            ApiError: FAILED_PRECONDITION.
        """
        if force or record.state in _DELETABLE or not record.nodes:
            return
        text = (
            f"Queued resource {record.name} is {record.state} and has {len(record.nodes)} nodes. "
            "Delete the nodes first, or delete with force."
        )
        raise failed_precondition(record.name, text)

    async def delete(self, record: QueuedRecord) -> tuple[str, Json]:
        """Take away the queued resource and its slices; the work of the delete operation."""
        await self.stop_work(record)
        record.set_state("DELETING", initiator="USER")
        async with record.lock:
            await self._slices.remove(record.slices())
        self._store.queued.pop(record.name, None)
        return "Empty", {}

    async def stop_work(self, record: QueuedRecord) -> None:
        """End whatever goes on with a queued resource in the background."""
        task, record.task = record.task, None
        if task is not None and not task.done() and task is not asyncio.current_task():
            task.cancel()
            await asyncio.wait([task])

    # What other hands do to its nodes

    async def node_removed(self, record: QueuedRecord) -> None:
        """Its user deleted one of its nodes: with the last one it is suspended."""
        if not record.nodes and record.state in {"ACTIVE", "FAILED"}:
            await self.suspend(record, initiator="USER")

    async def suspend(self, record: QueuedRecord, *, initiator: str) -> None:
        """Go through SUSPENDING to SUSPENDED."""
        record.set_state("SUSPENDING", initiator=initiator)
        await self._clock.step(pace.SUSPEND)
        if record.state == "SUSPENDING":
            record.set_state("SUSPENDED", initiator=initiator)

    def in_background(
        self, record: QueuedRecord, work: Callable[[], Coroutine[object, object, None]]
    ) -> asyncio.Task[None]:
        """Run work on a queued resource that its deletion ends."""
        before = record.task

        async def after_the_other() -> None:
            if before is not None and not before.done():
                await asyncio.wait([before])
            await work()

        self._follow(record, after_the_other())
        assert record.task is not None  # noqa: S101 - _follow set it
        return record.task


def _spec_document(parent: Parent, node_id: str, node: Json) -> Json:
    return {"parent": parent.name, "nodeId": node_id, "node": copy(node)}
