"""The few calls of other APIs that gcloud makes on its way: TPU v1 lists, and a Compute Engine project."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from multislice_nb.emulator.rpc import ApiError, Json

if TYPE_CHECKING:
    from multislice_nb.emulator.engine import Engine

_COLLECTION = re.compile(r"(projects/[^/]+/locations/[^/]+)/(acceleratorTypes|tensorflowVersions)")
_LOCATIONS = re.compile(r"(projects/[^/]+)/locations")
_PROJECT = re.compile(r"v1/projects/([A-Za-z0-9.:-]+)")


async def answer(engine: Engine, version: str, path: str, query: dict[str, str]) -> Json:
    """Answer a GET of /v1 or /compute.

    Raises:
        ApiError: NOT_FOUND for anything else.
    """
    if version == "compute" and (match := _PROJECT.fullmatch(path)):
        return _compute_project(match[1])
    page: Json = {key: query[key] for key in ("pageSize", "pageToken") if key in query}
    if version == "v1" and (match := _LOCATIONS.fullmatch(path)):
        return await engine.call("ListLocations", {"name": match[1], **page}, "v2")
    if version == "v1" and (match := _COLLECTION.fullmatch(path)):
        request: Json = {"parent": match[1], **page}
        if match[2] == "acceleratorTypes":
            return await engine.call("ListAcceleratorTypes", request, "v2")
        return _as_tensorflow(await engine.call("ListRuntimeVersions", request, "v2"))
    raise ApiError("NOT_FOUND", f"There is no GET /{version}/{path}.")


def _as_tensorflow(listed: Json) -> Json:
    versions = [
        {
            "name": entry["name"].replace("/runtimeVersions/", "/tensorflowVersions/"),
            "version": entry["version"],
        }
        for entry in listed.pop("runtimeVersions", [])
    ]
    return {"tensorflowVersions": versions, **listed}


def _compute_project(project: str) -> Json:
    # gcloud reads SSH keys from here; the fingerprint has to be base64.
    metadata = {"kind": "compute#metadata", "fingerprint": "AAAAAAAAAAA=", "items": []}
    return {"kind": "compute#project", "name": project, "id": "1", "commonInstanceMetadata": metadata}
