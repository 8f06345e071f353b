"""What a worker knows of itself, asked of its metadata server; standard library only.

On Compute Engine the server is `metadata.google.internal`; GCE_METADATA_HOST names another, as Google's own
libraries have it.
"""

from __future__ import annotations

import json
import os
import re
import urllib.error
import urllib.request
from dataclasses import dataclass

__all__ = ["Machine", "access_token", "metadata", "parse_tpu_env", "preempted"]

_LINE = re.compile(r"^\s*(\w+)\s*:\s*'?(.*?)'?\s*$")
MEGASCALE_PORT = 8080
"""Where libtpu's coordinator listens on worker 0 of slice 0, as TPU VMs have it."""


def metadata(path: str, *, timeout: float = 10.0) -> str | None:
    """One entry of the metadata server, as `instance/attributes/tpu-env`; None where there is none."""
    host = os.environ.get("GCE_METADATA_HOST") or "metadata.google.internal"
    request = urllib.request.Request(
        f"http://{host}/computeMetadata/v1/{path}", headers={"Metadata-Flavor": "Google"}
    )
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:  # noqa: S310 - http it is
            return str(response.read().decode())
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise


def access_token() -> str:
    """An access token of the worker's service account.

    Raises:
        OSError: The metadata server did not give one.
    """
    text = metadata("instance/service-accounts/default/token")
    if text is None:
        raise PermissionError("this machine has no service account")
    return str(json.loads(text)["access_token"])


@dataclass(frozen=True, slots=True)
class Machine:
    """A worker's place.

    Attributes:
        slice_id: Its slice.
        worker_id: Its place in that.
        node_id: The slice's name.
        project: The project.
        zone: The zone.
        address: Its own address inside the network.
        megascale_port: Where libtpu's coordinator listens.
    """

    slice_id: int
    worker_id: int
    node_id: str
    project: str
    zone: str
    address: str
    megascale_port: int = MEGASCALE_PORT

    @classmethod
    def here(cls) -> Machine:
        """This machine's.

        Raises:
            OSError: The metadata server does not answer, or this is no TPU VM.
        """
        values = parse_tpu_env(metadata("instance/attributes/tpu-env") or "")
        if "WORKER_ID" not in values:
            raise OSError("this machine's metadata has no tpu-env: it is no TPU VM")
        address = metadata("instance/network-interfaces/0/ip") or ""
        _, _, port = values.get("MEGASCALE_COORDINATOR_ADDRESS", "").rpartition(":")
        return cls(
            slice_id=int(values.get("MEGASCALE_SLICE_ID") or 0),
            worker_id=int(values["WORKER_ID"]),
            node_id=values.get("NODE_ID", ""),
            project=values.get("CONSUMER_PROJECT_ID", ""),
            zone=values.get("ZONE", ""),
            address=address.strip(),
            megascale_port=int(port) if port.isdigit() else MEGASCALE_PORT,
        )


def parse_tpu_env(text: str) -> dict[str, str]:
    """The attribute `tpu-env`: lines of `KEY: 'value'`."""
    return {match[1]: match[2] for line in text.splitlines() if (match := _LINE.match(line))}


def preempted() -> bool:
    """Whether this machine was told that it will be taken away."""
    try:
        return (metadata("instance/preempted", timeout=2.0) or "").strip() == "TRUE"
    except OSError:
        return False
