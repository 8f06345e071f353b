"""The emulator's own calls, under /emulator/v1: status, owners, faults, clock, startup scripts' output, shutdown."""

from __future__ import annotations

import asyncio
import math
import os
import time
from typing import TYPE_CHECKING, Any

import psutil

from multislice_nb.emulator.rpc import ApiError, Json, invalid

if TYPE_CHECKING:
    from aiohttp import web

    from multislice_nb.emulator.engine import Engine


class Admin:
    """What only the emulator has."""

    def __init__(self, engine: Engine, idle: float) -> None:
        self._engine = engine
        self._idle = idle
        self._started = time.monotonic()
        self._last = time.monotonic()
        self._owners: dict[int, float] = {}
        self.ending = asyncio.Event()

    def active(self) -> None:
        """Somebody uses the emulator."""
        self._last = time.monotonic()

    async def answer(self, request: web.Request, path: str, body: Json) -> Json:  # noqa: PLR0911 - one per call
        """Answer one of the emulator's own calls.

        Raises:
            ApiError: It is wrong, or there is no such call.
        """
        match request.method, path:
            case "GET", "v1/status":
                return self.status()
            case "POST", "v1/owners":
                return self._own(body)
            case "POST", "v1/shutdown":
                self.ending.set()
                return {}
            case "GET", "v1/faults":
                return {"kinds": {kind: _doc(fault) for kind, fault in self._engine.faults.kinds.items()}}
            case "POST", "v1/faults":
                self.active()
                parameters = dict(body)
                await self._engine.faults.inject(str(parameters.pop("kind", "")), parameters)
                return {}
            case "DELETE", "v1/faults":
                await self._engine.faults.clear()
                return {}
            case "POST", "v1/clock":
                return self._set_clock(body)
            case "GET", "v1/startupOutput":
                return self._startup_output(request.query.get("node", ""), request.query.get("worker", "0"))
            case _:
                raise ApiError("NOT_FOUND", f"There is no {request.method} /emulator/{path}.")

    def status(self) -> Json:
        """How the emulator is."""
        store = self._engine.store
        vms = list(store.vms())
        return {
            "pid": os.getpid(),
            "uptimeSeconds": round(time.monotonic() - self._started, 3),
            "idleSeconds": round(time.monotonic() - self._last, 3),
            "endsAfterIdleSeconds": self._idle,
            "owners": self._living_owners(),
            "queuedResources": {record.name: record.state for record in store.queued.values()},
            "nodes": {node.name: node.state for node in store.nodes.values()},
            "chipsUsed": self._engine.admissions.in_use(),
            "vms": len(vms),
            "vmsWithProcesses": sum(vm.used for vm in vms),
            "sshSessions": self._engine.sessions(),
            "startupScripts": self._engine.running_scripts(),
            "sshPort": self._engine.machine.ssh_port,
            "timeFactor": self._engine.clock.factor,
            "memoryBytes": psutil.Process().memory_info().rss,
        }

    def _own(self, body: Json) -> Json:
        pid = body.get("pid")
        if type(pid) is not int or pid < 1:
            raise invalid("pid", "pid must be a process id.")
        self.active()
        try:
            self._owners[pid] = psutil.Process(pid).create_time()
        except psutil.Error as error:
            raise invalid("pid", f"There is no process {pid}.") from error
        return {"owners": self._living_owners()}

    def _living_owners(self) -> list[int]:
        for pid, created in list(self._owners.items()):
            try:
                process = psutil.Process(pid)
                alive = process.create_time() == created and process.status() != psutil.STATUS_ZOMBIE
            except psutil.Error:
                alive = False
            if not alive:
                del self._owners[pid]
        return sorted(self._owners)

    def _set_clock(self, body: Json) -> Json:
        factor, advance = body.get("factor"), body.get("advance", 0)
        for name, value in (("factor", factor), ("advance", advance)):
            if value is None:
                continue
            if type(value) not in {int, float} or not math.isfinite(value) or value < 0:
                raise invalid(name, f"{name} must be a number that is not negative.")
        if factor is not None:
            self._engine.clock.factor = float(factor)
        self._engine.clock.advance(float(advance))
        return {"factor": self._engine.clock.factor, "now": self._engine.clock.now()}

    def _startup_output(self, node: str, worker: str) -> Json:
        record = self._engine.faults.find(node)
        if not worker.isascii() or not worker.isdigit() or int(worker) >= len(record.vms):
            raise invalid(
                "worker", f"Node {record.name} has {len(record.vms)} workers; there is no {worker!r}."
            )
        vm = record.vms[int(worker)]
        return {"boots": vm.boots, "attempt": vm.attempt, "output": vm.startup_output()}

    async def until_idle(self) -> None:
        """Return once nobody owns the emulator and nobody has used it for a while, or it is told to end."""
        while not self.ending.is_set():
            if self._engine.sessions() or self._engine.running_scripts():
                self.active()
            unused = time.monotonic() - self._last
            if unused >= self._idle and not self._living_owners():
                if not await self._engine.has_detached_commands():
                    return
                self.active()  # all processes were looked at for that: not again each second
                continue
            try:
                async with asyncio.timeout(min(1.0, max(0.05, self._idle - unused))):
                    await self.ending.wait()
            except TimeoutError:
                continue


def _doc(fault: Any) -> str:
    return (fault.__doc__ or "").strip()
