"""The few calls of the Cloud TPU API that a worker makes about its own queued resource.

A worker has this package and the standard library, not Google's client library; so these three go over REST,
with the token of the worker's service account. Where the API is comes from gcloud's own variable.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

from multislice_nb.jobs.machine import access_token

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["OwnQueuedResource"]

_ENDPOINT = "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU"
_GOOGLE = "https://tpu.googleapis.com/"


class OwnQueuedResource:
    """The queued resource that a worker belongs to.

    Args:
        name: Its full name, `projects/P/locations/Z/queuedResources/Q`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._root = (os.environ.get(_ENDPOINT) or _GOOGLE).rstrip("/")

    def state(self) -> str:
        """Its state, or empty where it is gone.

        Raises:
            OSError: The API did not answer, or the service account may not ask.
        """
        found = self._call("GET", self.name)
        return str(found.get("state", {}).get("state", "")) if found is not None else ""

    def troubled_nodes(self) -> dict[str, str]:
        """Its nodes that are not READY, with their states; nodes that are missing count as MISSING.

        Raises:
            OSError: The API did not answer, or the service account may not ask.
        """
        found = self._call("GET", self.name)
        if found is None:
            return {}
        parent = self.name.rsplit("/queuedResources/", 1)[0]
        troubled = {}
        for spec in found.get("tpu", {}).get("nodeSpec", []):
            node = self._call("GET", f"{parent}/nodes/{spec['nodeId']}")
            state = str(node.get("state", "UNKNOWN")) if node is not None else "MISSING"
            if state != "READY" or (node or {}).get("health") == "UNHEALTHY_MAINTENANCE":
                troubled[str(spec["nodeId"])] = state
        return troubled

    def delete(self) -> None:
        """Ask for its deletion with all its nodes; what is gone already is no error.

        Raises:
            OSError: The API did not answer, or the service account may not delete it.
        """
        self._call("DELETE", f"{self.name}?force=true")

    def reset(self) -> None:
        """Restart all its workers, this one included.

        Raises:
            OSError: The API did not answer, or the service account may not reset it.
        """
        self._call("POST", f"{self.name}:reset", {})

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
        request = urllib.request.Request(  # noqa: S310 - the root is Google's or the one the machine was given
            f"{self._root}/v2/{path}",
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Bearer {access_token()}", "Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
                return dict(json.loads(response.read() or b"{}"))
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            detail = error.read().decode(errors="replace")[:300]
            kind = PermissionError if error.code in {401, 403} else OSError
            raise kind(f"{method} {path}: HTTP {error.code} {detail}") from error
