"""The emulator's parts, put together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from multislice_nb.emulator import processes
from multislice_nb.emulator.admission import Admissions
from multislice_nb.emulator.api import Api
from multislice_nb.emulator.api_faults import ApiFaults
from multislice_nb.emulator.faults import Faults
from multislice_nb.emulator.model import Store
from multislice_nb.emulator.nodes import Nodes
from multislice_nb.emulator.operations import Operations
from multislice_nb.emulator.provisioner import Provisioner
from multislice_nb.emulator.repair import Repairs
from multislice_nb.emulator.rpc import ApiError, Json
from multislice_nb.emulator.schema import methods
from multislice_nb.emulator.slices import Slices
from multislice_nb.emulator.vm import Machine, power_off

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from multislice_nb.emulator.clock import Clock


class Engine:
    """Everything behind the API port."""

    def __init__(self, machine: Machine, clock: Clock) -> None:
        self.machine = machine
        self.clock = clock
        self.store = Store()
        self.admissions = Admissions(clock)
        self.operations = Operations(self.store, clock)
        self.slices = Slices(self.store, clock, machine, self.admissions)
        self.provisioner = Provisioner(self.store, clock, self.slices, self.admissions)
        self.nodes = Nodes(self.store, clock, self.slices, self.admissions, self.provisioner)
        self.repairs = Repairs(clock, self.slices, self.admissions, self.provisioner)
        self.api = Api(self)
        self.api_faults = ApiFaults()
        self.faults = Faults(self)

    async def call(self, method: str, request: Json, version: str) -> Json:
        """Call a method of the service.

        Raises:
            ApiError: The service's refusal.
        """
        if method not in methods(version):
            raise ApiError("UNIMPLEMENTED", f"Method {method} is not implemented in {version}.")
        handler: Callable[[Json, str], Awaitable[Json]] = getattr(self.api, method)
        await self.api_faults.before(method)
        return await handler(request, version)

    def sessions(self) -> int:
        """How many SSH clients are logged in to any worker."""
        return sum(vm.listener.sessions for vm in self.store.vms())

    def running_scripts(self) -> int:
        """How many workers' startup scripts run: on a worker whose job nobody watches, it is the job."""
        return sum(vm.running_scripts for vm in self.store.vms())

    async def has_detached_commands(self) -> bool:
        """Whether a command runs on a worker that was started to go on when nobody is connected any more."""
        return await asyncio.to_thread(processes.any_detached, self.machine.emulator_id)

    async def close(self) -> None:
        """End everything that was started for anybody."""
        await self.repairs.stop()
        records = list(self.store.queued.values())
        await asyncio.gather(*(self.provisioner.stop_work(record) for record in records))
        pending = [op.task for op in self.store.operations.values() if op.task and not op.task.done()]
        for task in pending:
            task.cancel()
        if pending:
            await asyncio.wait(pending)
        await power_off(list(self.store.vms()), grace=0.2)
