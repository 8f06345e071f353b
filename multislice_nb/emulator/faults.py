"""Failures at will, each by a name and a few parameters; the REST face, the magic and Python all call these."""

from __future__ import annotations

import asyncio
import inspect
import signal
from typing import TYPE_CHECKING, Any

from multislice_nb.emulator import processes
from multislice_nb.emulator.admission import UNLIMITED
from multislice_nb.emulator.api_faults import Burst
from multislice_nb.emulator.disk import fill_disk
from multislice_nb.emulator.rpc import CODES, ApiError, Json, invalid, not_found
from multislice_nb.errors import AcceleratorTypeError
from multislice_nb.tpu import generation as tpu_generation

if TYPE_CHECKING:
    from collections.abc import Callable

    from multislice_nb.emulator.engine import Engine
    from multislice_nb.emulator.model import NodeRecord
    from multislice_nb.emulator.vm import Vm


class Faults:
    """The failures that Multislice users meet."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.kinds: dict[str, Callable[..., Any]] = {
            "api-errors": self.api_errors,
            "api-latency": self.api_latency,
            "capacity": self.capacity,
            "disk-full": self.disk_full,
            "dropped-operations": self.dropped_operations,
            "fail-creation": self.fail_creation,
            "hang": self.hang,
            "hardware-failure": self.hardware_failure,
            "host-key-changed": self.host_key_changed,
            "maintenance": self.maintenance,
            "preempt": self.preempt,
            "queued-resource-quota": self.queued_resource_quota,
            "queued-state": self.queued_state,
            "quota": self.quota,
            "reservation": self.reservation,
            "slow-operations": self.slow_operations,
            "ssh-refused": self.ssh_refused,
            "stock-out": self.stock_out,
        }

    async def inject(self, kind: str, parameters: Json) -> None:
        """Make a fault happen.

        Args:
            kind: One of `kinds`.
            parameters: Its parameters, by name.

        Raises:
            ApiError: There is no such fault, or a parameter is wrong.
        """
        fault = self.kinds.get(kind)
        if fault is None:
            raise invalid("kind", f"There is no fault {kind!r}; there are {', '.join(self.kinds)}.")
        try:
            bound = inspect.signature(fault).bind(**parameters)
        except TypeError as error:
            raise invalid(kind, f"Fault {kind}: {error}.") from error
        for name, value in bound.arguments.items():
            _check_type(kind, name, value, inspect.get_annotations(fault).get(name, ""))
        result = fault(*bound.args, **bound.kwargs)
        if inspect.isawaitable(result):
            await result

    async def clear(self) -> None:
        """Take back every fault that lasts. What has happened to slices stays."""
        self._engine.api_faults.clear()
        self._engine.operations.delay = 0.0
        self._engine.operations.dropped = 0
        self._engine.provisioner.failing_slices.clear()
        self._engine.provisioner.queued_state = "WAITING_FOR_RESOURCES"
        admissions = self._engine.admissions
        admissions.quota.clear()
        admissions.queued_resource_quota = UNLIMITED
        admissions.limits.clear()
        admissions.reservations.clear()
        admissions.pump()
        await self._set(list(self._engine.store.vms()), ssh_refused=False, hung=False, disk_full=False)

    # Slices

    async def preempt(self, node: str, warning: float = 0.0) -> None:
        """Take a spot slice away, after `warning` seconds of notice."""
        await self._engine.repairs.preempt(self.find(node), warning=warning)

    async def maintenance(self, node: str, workers: list[int] | None = None, warning: float = 0.0) -> None:
        """Let a maintenance event happen to a slice, after `warning` seconds of notice."""
        await self._engine.repairs.maintain(self.find(node), workers or [], warning=warning)

    async def hardware_failure(self, node: str, worker: int = 0) -> None:
        """Break one worker's hardware; its slice is repaired."""
        await self._engine.repairs.fail(self.find(node), worker)

    def fail_creation(self, node_id: str, message: str = "The TPU node could not be created.") -> None:
        """Let a slice fail when its queued resource is provisioned, which makes that FAILED."""
        self._engine.provisioner.failing_slices[node_id] = ApiError("INTERNAL", message)

    # Chips

    def capacity(self, generation: str, zone: str = "*", chips: int | None = None) -> None:
        """Set how many chips a zone has; None is no limit."""
        limit = UNLIMITED if chips is None else max(0, chips)
        self._engine.admissions.set_limit(zone, _generation(generation), limit)

    def stock_out(self, generation: str, zone: str = "*") -> None:
        """No chip is left for anybody who does not have it already."""
        self.capacity(generation, zone, 0)

    def quota(self, generation: str, tier: str = "on-demand", chips: int | None = None) -> None:
        """Set the quota of chips of a tier (on-demand, spot, reserved); None is no limit."""
        if tier not in {"on-demand", "spot", "reserved"}:
            raise invalid("tier", f"Quota is of the tier on-demand, spot or reserved; not {tier!r}.")
        limit = UNLIMITED if chips is None else chips
        self._engine.admissions.quota[_generation(generation), tier] = limit

    def queued_resource_quota(self, count: int | None = None) -> None:
        """Set how many queued resources a zone may hold; None is no limit."""
        self._engine.admissions.queued_resource_quota = UNLIMITED if count is None else count

    def reservation(self, name: str, chips: int) -> None:
        """Make or resize a reservation, by its full name."""
        from multislice_nb.emulator.names import parse_name

        parse_name(name, "reservations")
        self._engine.admissions.reservations[name] = chips
        self._engine.admissions.pump()

    def queued_state(self, state: str) -> None:
        """What the queue calls a waiting request: WAITING_FOR_RESOURCES, or ACCEPTED as it used to be."""
        if state not in {"WAITING_FOR_RESOURCES", "ACCEPTED"}:
            raise invalid("state", f"A waiting request is WAITING_FOR_RESOURCES or ACCEPTED; not {state!r}.")
        self._engine.provisioner.queued_state = state

    # The API

    def api_errors(self, status: str = "UNAVAILABLE", count: int = 1, method: str = "") -> None:
        """Refuse the next `count` calls with a google.rpc code such as UNAVAILABLE or RESOURCE_EXHAUSTED."""
        if count < 1:
            raise invalid("count", f"At least one call is refused; not {count}.")
        if status not in CODES:
            raise invalid("status", f"{status!r} is not a google.rpc code; there are {', '.join(CODES)}.")
        self._engine.api_faults.bursts.append(Burst(status, count, method))

    def api_latency(self, seconds: float) -> None:
        """Delay every call."""
        self._engine.api_faults.latency = max(0.0, seconds)

    def slow_operations(self, seconds: float) -> None:
        """Let operations say only later that they are done."""
        self._engine.operations.delay = max(0.0, seconds)

    def dropped_operations(self, count: int = 1) -> None:
        """Let the next `count` operations do their work and never say so."""
        self._engine.operations.dropped = max(0, count)

    # VMs

    async def ssh_refused(self, node: str, worker: int | None = None, on: bool = True) -> None:
        """Refuse SSH connections, and drop those that are open."""
        await self._set(self._vms(node, worker), ssh_refused=on)

    def host_key_changed(self, node: str, worker: int | None = None) -> None:
        """Answer SSH with another host key, as after a VM was made anew."""
        for vm in self._vms(node, worker):
            vm.change_host_key()

    async def disk_full(self, node: str, worker: int | None = None, on: bool = True) -> None:
        """Let writes fail: SFTP for lack of space, commands by a file size limit of nought."""
        await self._set(self._vms(node, worker), disk_full=on)

    async def hang(self, node: str, worker: int | None = None, on: bool = True) -> None:
        """Stop a worker's processes in their tracks, until its next boot; SSH connects and hears nothing."""
        await self._set(self._vms(node, worker), hung=on)

    async def _set(self, vms: list[Vm], **wanted: bool) -> None:
        for name, value in wanted.items():
            changed = [vm for vm in vms if getattr(vm.faults, name) != value]
            for vm in changed:
                setattr(vm.faults, name, value)
            if name == "ssh_refused":
                for vm in changed:
                    if vm.up:
                        vm.listener.close() if value else vm.listen()
            elif used := [vm for vm in changed if vm.used]:
                marks, folders = [vm.mark for vm in used], [vm.folder for vm in used]
                found = await asyncio.to_thread(processes.find, marks, folders)
                if name == "hung":
                    processes.send(found, signal.SIGSTOP if value else signal.SIGCONT)
                else:
                    fill_disk(found, full=value)

    def _vms(self, node: str, worker: int | None) -> list[Vm]:
        record = self.find(node)
        if worker is None:
            return record.vms
        if not 0 <= worker < len(record.vms):
            raise invalid(
                "worker", f"Node {record.name} has {len(record.vms)} workers; there is no worker {worker}."
            )
        return [record.vms[worker]]

    def find(self, node: str) -> NodeRecord:
        """The node of a full name, or of an id that is unique.

        Raises:
            ApiError: NOT_FOUND, or INVALID_ARGUMENT where the id is not unique.
        """
        if node in self._engine.store.nodes:
            return self._engine.store.nodes[node]
        matches = [record for record in self._engine.store.nodes.values() if record.spec.node_id == node]
        if not matches:
            raise not_found(node)
        if len(matches) > 1:
            raise invalid("node", f"Several nodes are called {node!r}; use the full name.")
        return matches[0]


def _generation(name: str) -> str:
    try:
        return tpu_generation(name).name
    except AcceleratorTypeError as error:
        raise invalid("generation", str(error).replace("\n", " ")) from error


def _check_type(kind: str, name: str, value: object, annotation: str) -> None:
    """Hold a JSON value to the annotation of its parameter."""
    allowed: dict[str, tuple[type, ...]] = {
        "str": (str,),
        "int": (int,),
        "float": (int, float),
        "bool": (bool,),
    }
    for part in annotation.split(" | "):
        if part == "None" and value is None:
            return
        if part.startswith("list") and isinstance(value, list) and all(type(item) is int for item in value):
            return
        if type(value) in allowed.get(part, ()):
            return
    raise invalid(name, f"Fault {kind}: {name} must be {annotation}; not {value!r}.")
