"""A running emulator as the tests use it: over REST as curl would, and over OpenSSH."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from multislice_nb.emulator.address import EmulatorAddress

PARENT = "projects/emulated-project/locations/us-central2-b"


@dataclass(frozen=True)
class Answer:
    """An HTTP status and a JSON document."""

    status: int
    body: Any


@dataclass(frozen=True)
class Emulated:
    """A running emulator and ways to use it."""

    address: EmulatorAddress

    def rest(
        self, method: str, path: str, body: Any = None, *, token: str | None = None, **headers: str
    ) -> Answer:
        """Call a path of the port as curl would; `body` may be raw bytes."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        secret = self.address.token if token is None else token
        auth = {"Authorization": f"Bearer {secret}"} if secret else {}
        request = urllib.request.Request(  # noqa: S310 - the emulator's own address
            f"{self.address.url}{path}",
            data,
            {**auth, "Content-Type": "application/json", **headers},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310
                return Answer(response.status, json.loads(response.read()))
        except urllib.error.HTTPError as error:
            return Answer(error.code, json.loads(error.read()))

    def fault(self, kind: str, **parameters: Any) -> Answer:
        """Inject a fault."""
        return self.rest("POST", "/emulator/v1/faults", {"kind": kind, **parameters})

    def create(self, name: str, count: int = 1, accelerator_type: str = "v4-8", **extra: Any) -> Answer:
        """Ask for slices over REST."""
        node = {"acceleratorType": accelerator_type, "runtimeVersion": "tpu-ubuntu2204-base"}
        node.update(extra.pop("node", {}))
        spec: dict[str, Any] = {"parent": PARENT, "node": node}
        if count > 1:
            spec["multisliceParams"] = {"nodeCount": count}
        else:
            spec["nodeId"] = f"{name}-0"
        body = {"tpu": {"nodeSpec": [spec]}, **extra}
        return self.rest("POST", f"/v2/{PARENT}/queuedResources?queuedResourceId={name}", body)

    def get(self, name: str) -> Any:
        """A queued resource."""
        return self.rest("GET", f"/v2/{PARENT}/queuedResources/{name}").body

    def state(self, name: str) -> str:
        """A queued resource's state, or "GONE"."""
        document = self.get(name)
        return str(document["state"]["state"]) if "state" in document else "GONE"

    def node(self, node_id: str) -> Any:
        """A node."""
        return self.rest("GET", f"/v2alpha1/{PARENT}/nodes/{node_id}").body

    def active(self, name: str, count: int = 1, accelerator_type: str = "v4-8", **extra: Any) -> Any:
        """A queued resource that is ACTIVE."""
        assert self.create(name, count, accelerator_type, **extra).status == 200
        self.until(lambda: self.state(name) == "ACTIVE")
        return self.get(name)

    def delete(self, name: str) -> None:
        """Delete a queued resource and wait until it is gone."""
        self.rest("DELETE", f"/v2/{PARENT}/queuedResources/{name}?force=true")
        self.until(lambda: self.state(name) == "GONE")

    def finished(self, operation: Any) -> Any:
        """An operation once it is done."""
        path = f"/v2/{operation['name']}:wait"
        return self.rest("POST", path, {"timeout": "20s"}).body

    @staticmethod
    def until(condition: Callable[[], Any], seconds: float = 30.0) -> Any:
        """Wait for a condition, and return what it gave."""
        limit = time.monotonic() + seconds
        while not (value := condition()):
            assert time.monotonic() < limit, "the condition did not come true"
            time.sleep(0.02)
        return value

    def ssh_argv(self, node_id: str, worker: int = 0, *, program: str = "ssh") -> list[str]:
        """The start of an OpenSSH command for a worker."""
        endpoint = self.node(node_id)["networkEndpoints"][worker]
        port = str(endpoint["port"])
        options = [
            "StrictHostKeyChecking=no",
            "UserKnownHostsFile=/dev/null",
            "LogLevel=ERROR",
            "BatchMode=yes",
        ]
        argv = [
            program,
            "-F",
            "none",
            "-i",
            str(self.address.ssh_key),
            "-P" if program == "scp" else "-p",
            port,
        ]
        return argv + [part for option in options for part in ("-o", option)]

    def where(self, node_id: str, worker: int = 0) -> str:
        """user@address of a worker."""
        endpoint = self.node(node_id)["networkEndpoints"][worker]
        return f"{self.address.ssh_user}@{endpoint['ipAddress']}"

    def ssh(
        self, node_id: str, command: str, worker: int = 0, stdin: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command on a worker with OpenSSH."""
        argv = [*self.ssh_argv(node_id, worker), self.where(node_id, worker), command]
        return subprocess.run(argv, input=stdin, capture_output=True, timeout=60, check=False)
