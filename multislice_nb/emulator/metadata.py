"""The metadata server that programs on a TPU VM ask about themselves.

Each VM has its own, on the VM's address; it opens with the VM's first process. It tells VMs apart by the
address that was called, demands the `Metadata-Flavor` header as Google's does, and answers only processes of
this user where the system can say whose a connection is.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

from multislice_nb.emulator import network
from multislice_nb.emulator.environment import megascale

if TYPE_CHECKING:
    import socket

    from multislice_nb.emulator.vm import Vm

_FLAVOR = {"Metadata-Flavor": "Google", "Server": "Metadata Server for VM"}
_NONE = "NONE"


def tpu_env(vm: Vm) -> str:
    """The attribute `tpu-env`: lines of KEY: 'value'."""
    accelerator = vm.accelerator
    values = {
        "ACCELERATOR_TYPE": accelerator.name,
        "TYPE": accelerator.generation.api_type,
        "TOPOLOGY": accelerator.topology,
        "CHIPS_PER_HOST_BOUNDS": _bounds(accelerator.chips_per_worker),
        "HOST_BOUNDS": _host_bounds(vm),
        "NODE_ID": vm.node_id,
        "WORKER_ID": str(vm.worker_id),
        "ZONE": vm.zone,
        "CONSUMER_PROJECT_ID": vm.project,
        **megascale(vm),
    }
    return "".join(f"{key}: '{value}'\n" for key, value in values.items())


def _bounds(chips: int) -> str:
    return {1: "1,1,1", 4: "2,2,1", 8: "2,4,1"}.get(chips, f"{chips},1,1")


def _host_bounds(vm: Vm) -> str:
    shape = [*vm.accelerator.shape, 1, 1][:3]
    chips = [int(part) for part in _bounds(vm.accelerator.chips_per_worker).split(",")]
    return ",".join(str(max(1, size // per)) for size, per in zip(shape, chips, strict=True))


def _tree(vm: Vm) -> dict[str, object]:
    return {
        "attributes": {
            **vm.node_metadata(),
            "accelerator-type": vm.accelerator.name,
            "agent-worker-number": str(vm.worker_id),
            "instance-id": vm.node_id,
            "tpu-env": tpu_env(vm),
            "worker-network-endpoints": ",".join(f"unknown:unknown:{a}" for a in vm.slice_addresses()),
            **vm.attributes,
        },
        "hostname": vm.hostname,
        "id": vm.mark.rsplit("/", 2)[-2],
        "maintenance-event": vm.attributes.get("maintenance-event", _NONE),
        "name": vm.hostname,
        "network-interfaces": {"0": {"ip": vm.address}},
        "preempted": vm.attributes.get("preempted", "FALSE"),
        "service-accounts": {"default": _service_account(vm)},
        "zone": f"projects/{vm.project}/zones/{vm.zone}",
    }


class _Document(str):
    """An entry that is JSON itself, and is given to those alone who ask for it by its name."""

    __slots__ = ()


def _service_account(vm: Vm) -> dict[str, object]:
    """The account that programs on the VM act as: its token is the one that the emulator's API wants."""
    token = {"access_token": vm.machine.token, "expires_in": 3599, "token_type": "Bearer"}
    return {
        "aliases": ("default",),
        "email": f"service-account@{vm.project}.iam.gserviceaccount.com",
        "scopes": ("https://www.googleapis.com/auth/cloud-platform",),
        "token": _Document(json.dumps(token)),
    }


def _look_up(vm: Vm, path: str) -> object | None:
    here: object = {
        "instance": _tree(vm),
        "project": {"project-id": vm.project, "attributes": {}},
    }
    for part in filter(None, path.split("/")):
        if not isinstance(here, dict) or part not in here:
            return None
        here = here[part]
    return here


class MetadataServer:
    """All VMs' metadata servers in one."""

    def __init__(self) -> None:
        self._vms: dict[tuple[str, int], Vm] = {}
        self._sockets: dict[Vm, socket.socket] = {}
        self._runner = web.ServerRunner(web.Server(self._answer))

    async def start(self) -> None:
        """Get ready to serve."""
        await self._runner.setup()

    async def stop(self) -> None:
        """Close everything."""
        for vm in list(self._sockets):
            self.close(vm)
        await self._runner.cleanup()

    def open(self, vm: Vm) -> int:
        """Listen for a VM, and return the port."""
        server = self._sockets.get(vm)
        if server is None:
            # The port stays the same over the VM's life: running processes were told it.
            server = self._sockets[vm] = network.listen_near(vm.address, vm.metadata_port)
            asyncio.get_running_loop().add_reader(server, self._accept, server)
            self._vms[server.getsockname()[:2]] = vm
        return int(server.getsockname()[1])

    def close(self, vm: Vm) -> None:
        """Stop listening for a VM."""
        server = self._sockets.pop(vm, None)
        if server is not None:
            self._vms.pop(server.getsockname()[:2], None)
            asyncio.get_running_loop().remove_reader(server)
            server.close()

    def _accept(self, server: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            client, peer = server.accept()
        except OSError:
            return
        client.setblocking(False)
        if _stranger(peer, server.getsockname()):
            client.close()
            return
        protocol = self._runner.server
        if protocol is not None:
            loop.create_task(loop.connect_accepted_socket(protocol, client))  # noqa: RUF006 - aiohttp holds the connection

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        where = request.transport.get_extra_info("sockname")[:2] if request.transport else None
        vm = self._vms.get(where) if where else None
        if vm is None:
            return web.Response(status=503)
        if request.headers.get("Metadata-Flavor") != "Google" and request.path != "/":
            return web.Response(status=403, text="Missing Metadata-Flavor:Google header.\n", headers=_FLAVOR)
        if request.method != "GET":
            return web.Response(status=405, headers=_FLAVOR)
        if request.path == "/":
            return web.Response(text="computeMetadata/\n", headers=_FLAVOR)
        match = re.fullmatch(r"/computeMetadata/v1(/.*)?", request.path)
        found = _look_up(vm, match[1] or "") if match else None
        if found is None:
            return web.Response(status=404, headers=_FLAVOR)
        return _render(found, recursive=request.query.get("recursive", "").lower() == "true")


def _render(found: object, *, recursive: bool) -> web.Response:
    kind = "application/text"
    if isinstance(found, _Document):
        text, kind = str(found), "application/json"
    elif isinstance(found, tuple):
        text = "".join(f"{value}\n" for value in found)
    elif not isinstance(found, dict):
        text = str(found)
    elif recursive:
        text, kind = json.dumps(_recursive(found)), "application/json"
    else:
        text = "".join(f"{key}/\n" if isinstance(value, dict) else f"{key}\n" for key, value in found.items())
    return web.Response(text=text, headers=_FLAVOR, content_type=kind)


def _recursive(found: dict[str, object]) -> dict[str, object]:
    """All of a tree but its documents: an access token is one."""
    kept = {key: value for key, value in found.items() if not isinstance(value, _Document)}
    return {key: _recursive(value) if isinstance(value, dict) else value for key, value in kept.items()}


def _hex_address(host: str, port: int) -> str:
    # /proc/net/tcp shows the address as a number of the machine's own byte order.
    packed = int.from_bytes(bytes(int(part) for part in host.split(".")), "little")
    return f"{packed:08X}:{port:04X}"


def _stranger(peer: tuple[str, int], local: tuple[str, int]) -> bool:
    """Whether another user's process opened the connection. Only Linux can say; elsewhere nobody is one."""
    try:
        table = Path("/proc/net/tcp").read_text()
    except OSError:
        return False
    ends = f" {_hex_address(*peer[:2])} {_hex_address(*local[:2])} "
    for line in table.splitlines():
        if ends in line:
            return int(line.split()[7]) not in {os.getuid(), 0}
    return True
