"""What befalls slices: preemption, maintenance, failing hardware; and the repair that follows.

A slice of several is replaced by a new one under the same name, and then all other slices are reset, as the
Multislice documentation describes auto-repair. Where there is no capacity for the new slice, the repair waits
for it. A preempted slice that was alone ends its queued resource: SUSPENDING, then SUSPENDED.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

from multislice_nb.emulator import clock as pace
from multislice_nb.emulator import processes
from multislice_nb.emulator.clock import Clock, timestamp
from multislice_nb.emulator.rpc import failed_precondition, invalid

if TYPE_CHECKING:
    from multislice_nb.emulator.admission import Admissions
    from multislice_nb.emulator.model import NodeRecord, QueuedRecord
    from multislice_nb.emulator.provisioner import Provisioner
    from multislice_nb.emulator.slices import Slices
    from multislice_nb.emulator.vm import Vm


log = logging.getLogger(__name__)


class Repairs:
    """Misfortune and recovery."""

    def __init__(
        self, clock: Clock, slices: Slices, admissions: Admissions, provisioner: Provisioner
    ) -> None:
        self._clock = clock
        self._slices = slices
        self._admissions = admissions
        self._provisioner = provisioner
        self._tasks: set[asyncio.Task[None]] = set()

    async def preempt(self, node: NodeRecord, *, warning: float = 0.0) -> None:
        """Take a spot slice away.

        Args:
            node: The slice.
            warning: Seconds for which its VMs know before they lose power, having got SIGTERM.

        Raises:
            ApiError: FAILED_PRECONDITION: it is no running spot slice.
        """
        if node.admission.kind != "spot":
            text = f"Node {node.name} is {node.admission.kind}; only spot slices are preempted."
            raise failed_precondition(node.name, text)
        self._require_ready(node)
        for vm in node.vms:
            vm.attributes["preempted"] = "TRUE"
        if warning:
            await self._terminate(node.vms)
            await asyncio.sleep(warning)
            if node.state not in {"READY", "RESTARTING"}:  # something else took it meanwhile
                return
        await self._lose(node, "PREEMPTED", "The node was preempted.")

    async def fail(self, node: NodeRecord, worker: int) -> None:
        """Break the hardware of one worker, and with it its slice.

        Raises:
            ApiError: INVALID_ARGUMENT or FAILED_PRECONDITION.
        """
        self._require_ready(node)
        if not 0 <= worker < len(node.vms):
            raise invalid("worker", f"Node {node.name} has workers 0 to {len(node.vms) - 1}; not {worker}.")
        symptom = {
            "createTime": timestamp(self._clock.now()),
            "symptomType": "MESH_BUILD_FAIL",
            "details": "The worker's hardware failed.",
            "workerId": str(worker),
        }
        node.data.setdefault("symptoms", []).append(symptom)
        await self._lose(node, "REPAIRING", f"The hardware of worker {worker} failed.")

    async def maintain(self, node: NodeRecord, workers: list[int], *, warning: float = 0.0) -> None:
        """A maintenance event: the VMs are told, the warning passes, the slice restarts.

        Raises:
            ApiError: FAILED_PRECONDITION.
        """
        self._require_ready(node)
        affected = [vm for vm in node.vms if not workers or vm.worker_id in workers]
        for vm in affected:
            vm.attributes["maintenance-event"] = "TERMINATE_ON_HOST_MAINTENANCE"
        start = self._clock.now() + warning
        node.data["health"] = "UNHEALTHY_MAINTENANCE"
        node.data["healthDescription"] = "The TPU had a maintenance event."
        node.data["upcomingMaintenance"] = {
            "type": "UNSCHEDULED",
            "canReschedule": False,
            "windowStartTime": timestamp(start),
            "windowEndTime": timestamp(start + 3600),
            "latestWindowStartTime": timestamp(start),
            "maintenanceStatus": "PENDING",
        }
        try:
            await asyncio.sleep(warning or pace.MAINTENANCE * self._clock.factor)
            if node.state != "READY":  # something else took it meanwhile
                return
            node.data["upcomingMaintenance"]["maintenanceStatus"] = "ONGOING"
            await self._slices.restart([node])
        finally:
            for vm in affected:
                vm.attributes.pop("maintenance-event", None)
            node.data.pop("upcomingMaintenance", None)
            node.data.pop("healthDescription", None)
        record = node.queued
        if record is not None and len(record.specs) > 1 and record.state == "ACTIVE":
            async with record.lock:
                await self._reset_others(record, node)

    def _require_ready(self, node: NodeRecord) -> None:
        if node.state != "READY":
            text = f"Node {node.name} is {node.state}; this happens to READY nodes only."
            raise failed_precondition(node.name, text)

    async def _terminate(self, vms: list[Vm]) -> None:
        used = [vm for vm in vms if vm.used]
        if used:
            found = await asyncio.to_thread(
                processes.find, [vm.mark for vm in used], [vm.folder for vm in used]
            )
            processes.send(found, signal.SIGTERM)

    async def _lose(self, node: NodeRecord, state: str, description: str) -> None:
        # Marked at once: a second misfortune must not find it READY.
        node.state = state
        node.data["healthDescription"] = description
        await self._slices.halt([node], state)
        self._slices.free_chips(node)
        record = node.queued
        if record is None:
            if state == "REPAIRING":
                self._keep(asyncio.get_running_loop().create_task(self._repair_alone(node)))
        elif state == "PREEMPTED" and len(record.specs) == 1:
            self._provisioner.in_background(
                record, lambda: self._provisioner.suspend(record, initiator="SERVICE")
            )
        else:
            self._provisioner.in_background(record, lambda: self._replace(record, node))

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _repair_alone(self, node: NodeRecord) -> None:
        """A node without a queued resource comes back as it was once there is hardware."""
        try:
            await self._come_back(node)
        except Exception as error:
            log.exception("the repair of %s failed", node.name)
            node.state = "TERMINATED"
            node.data["healthDescription"] = f"The repair failed: {type(error).__name__}: {error}"

    async def _come_back(self, node: NodeRecord) -> None:
        await self._clock.step(pace.REPAIR)
        await self._admissions.wait(node.admission, node.spec.accelerator.chips)
        if node.state != "REPAIRING" or not node.vms:  # it was deleted while it waited
            self._admissions.release(node.admission, node.spec.accelerator.chips)
            return
        node.holds_chips = True
        node.data.pop("healthDescription", None)
        await self._slices.boot([node], during="REPAIRING")

    async def _replace(self, record: QueuedRecord, lost: NodeRecord) -> None:
        """Make a new slice in place of a lost one, then reset the others."""
        await self._clock.step(pace.REPAIR)
        # The time that the request itself was valid for has nothing to do with its repair.
        admission = replace(record.admission, not_before=0.0, not_after=float("inf"))
        chips = lost.spec.accelerator.chips
        await self._admissions.wait(admission, chips)
        handed_over = False
        try:
            async with record.lock:
                # Its user, or another repair, may have taken it away meanwhile.
                there = record.nodes.get(lost.slice_id) is lost and lost.state != "DELETING"
                if record.state != "ACTIVE" or not there:
                    return
                await self._slices.discard([lost])
                new = self._slices.make(record.parent, lost.spec, record.admission, record, lost.slice_id)
                handed_over = True
                await self._clock.step(pace.CREATE_NODE)
                await self._slices.boot([new], during="CREATING")
                await self._reset_others(record, new)
        finally:
            if not handed_over:
                self._admissions.release(admission, chips)

    async def _reset_others(self, record: QueuedRecord, repaired: NodeRecord) -> None:
        others = [node for node in record.slices() if node is not repaired and node.state == "READY"]
        await self._slices.restart(others)

    async def stop(self) -> None:
        """End repairs that are under way."""
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
