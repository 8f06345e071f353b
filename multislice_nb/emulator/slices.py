"""One slice's life: its VMs are made, booted, stopped, reset and taken away."""

from __future__ import annotations

import asyncio
import secrets
import shutil
from typing import TYPE_CHECKING

from multislice_nb.emulator import clock as pace
from multislice_nb.emulator.address import DEFAULT_PROJECT, DEFAULT_ZONE
from multislice_nb.emulator.clock import Clock, timestamp
from multislice_nb.emulator.model import NodeRecord, QueuedRecord, Store, copy, numeric_id, vms_of
from multislice_nb.emulator.names import folder_name
from multislice_nb.emulator.vm import Machine, Vm, power_off

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from multislice_nb.emulator.admission import Admissions
    from multislice_nb.emulator.model import Admission, SliceSpec
    from multislice_nb.emulator.names import Parent
    from multislice_nb.emulator.rpc import Json

# Boots that many VMs before it lets other work run.
_BOOT_BATCH = 64


class Slices:
    """Makes and changes slices. It knows nothing of queues: who may have a slice is decided elsewhere."""

    def __init__(self, store: Store, clock: Clock, machine: Machine, admissions: Admissions) -> None:
        self._admissions = admissions
        self._store = store
        self._clock = clock
        self._machine = machine

    def make(
        self,
        parent: Parent,
        spec: SliceSpec,
        admission: Admission,
        queued: QueuedRecord | None,
        slice_id: int,
    ) -> NodeRecord:
        """A new node in CREATING, with its VMs still off."""
        data = self._document(parent, spec, admission, queued)
        node = NodeRecord(parent, spec, data, admission, queued, slice_id)
        slices = len(queued.specs) if queued else 1
        marker = f"{self._machine.emulator_id}/{secrets.token_hex(6)}"
        node.vms = [
            Vm(
                machine=self._machine,
                node_id=spec.node_id,
                worker_id=worker,
                slice_id=slice_id,
                slices=slices,
                zone=parent.location,
                project=parent.project,
                accelerator=spec.accelerator,
                folder=self._folder(node, worker),
                mark=f"{marker}/{worker}",
                slice_addresses=lambda: [vm.address for vm in node.vms],
                coordinator_address=lambda: _coordinator(node),
                node_metadata=lambda: node.metadata,
                attempt=queued.attempts.get((slice_id, worker), 0) if queued else 0,
            )
            for worker in range(spec.accelerator.workers)
        ]
        # Only a slice that is whole is known, and holds its chips.
        self._store.nodes[node.name] = node
        if queued is not None:
            queued.nodes[slice_id] = node
        return node

    def _folder(self, node: NodeRecord, worker: int) -> Path:
        parent = node.parent
        place = folder_name(node.queued.queued_resource_id) if node.queued else "_"
        if (parent.project, parent.location) != (DEFAULT_PROJECT, DEFAULT_ZONE):
            place = f"{folder_name(parent.project)}~{folder_name(parent.location)}~{place}"
        return self._machine.vms / place / folder_name(node.spec.node_id) / str(worker)

    def _document(
        self, parent: Parent, spec: SliceSpec, admission: Admission, queued: QueuedRecord | None
    ) -> Json:
        accelerator = spec.accelerator
        kind = admission.kind
        document: Json = {
            **copy(spec.node),
            "name": parent.child("nodes", spec.node_id),
            "acceleratorType": accelerator.name,
            "acceleratorConfig": {"type": accelerator.generation.api_type, "topology": accelerator.topology},
            "state": "CREATING",
            "id": numeric_id(),
            "createTime": timestamp(self._clock.now()),
            "apiVersion": "V2",
            "schedulingConfig": {
                "preemptible": False,
                "reserved": kind == "reserved",
                "spot": kind == "spot",
            },
            "networkConfig": {**_NETWORK, **spec.node.get("networkConfig", {})},
        }
        account = document.setdefault("serviceAccount", {})
        account.setdefault("email", f"service-account@{parent.project}.iam.gserviceaccount.com")
        account.setdefault("scope", ["https://www.googleapis.com/auth/cloud-platform"])
        if queued is not None:
            document["queuedResource"] = queued.name
            if len(queued.specs) > 1:
                document["multisliceNode"] = True
        return document

    async def boot(self, nodes: Iterable[NodeRecord], *, during: str = "") -> None:
        """Turn the VMs of slices on; each is READY when all of its VMs are up.

        Args:
            nodes: The slices.
            during: Leave out nodes that are not in this state any more.
        """
        count = 0
        for node in nodes:
            if during and node.state != during:
                continue
            for vm in node.vms:
                vm.power_on()
                if node.queued is not None:
                    node.queued.attempts[node.slice_id, vm.worker_id] = vm.attempt
                count += 1
                if count % _BOOT_BATCH == 0:
                    await asyncio.sleep(0)
            node.data["networkEndpoints"] = [_endpoint(vm) for vm in node.vms]
            node.data["health"] = "HEALTHY"
            node.state = "READY"

    async def halt(self, nodes: Iterable[NodeRecord], state: str) -> None:
        """Turn the VMs of slices off; their disks stay."""
        targets = list(nodes)
        for node in targets:
            node.state = state
            node.data.pop("health", None)
        await power_off(vms_of(targets))

    async def restart(self, nodes: Iterable[NodeRecord]) -> None:
        """Reset slices: memory is lost, disks stay, startup scripts run again."""
        targets = list(nodes)
        await self.halt(targets, "RESTARTING")
        await self._clock.step(pace.RESET_NODE)
        await self.boot(targets, during="RESTARTING")

    async def remove(self, nodes: Iterable[NodeRecord]) -> None:
        """Take slices away with all that is on them."""
        targets = list(nodes)
        await self.halt(targets, "DELETING")
        await self._clock.step(pace.DELETE)
        await self.discard(targets)

    async def discard(self, nodes: Iterable[NodeRecord]) -> None:
        """Free the disks of slices whose VMs are off, then forget them and free their addresses."""
        targets = list(nodes)
        disks = [vm.folder for vm in vms_of(targets) if vm.used]
        if disks:
            # Before the names are free: a new slice of the same name has the same folders.
            await asyncio.to_thread(_remove, disks)
        for node in targets:
            self.free_chips(node)
            for vm in node.vms:
                vm.release()
            node.vms = []
            if self._store.nodes.get(node.name) is node:
                del self._store.nodes[node.name]
            if node.queued is not None and node.queued.nodes.get(node.slice_id) is node:
                del node.queued.nodes[node.slice_id]

    def free_chips(self, node: NodeRecord) -> None:
        """Give back the chips that a slice holds."""
        if node.holds_chips:
            node.holds_chips = False
            self._admissions.release(node.admission, node.spec.accelerator.chips)


def _remove(folders: Iterable[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


_NETWORK = {"network": "default", "subnetwork": "default", "enableExternalIps": True}


def _endpoint(vm: Vm) -> Json:
    return {"ipAddress": vm.address, "port": vm.ssh_port, "accessConfig": {"externalIp": vm.address}}


def _coordinator(node: NodeRecord) -> str:
    first = node.queued.nodes.get(0) if node.queued else node
    source = first if first is not None and first.vms else node
    return source.vms[0].address
