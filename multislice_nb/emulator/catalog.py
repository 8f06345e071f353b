"""What each location offers, as the API lists it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multislice_nb.emulator import names, zones
from multislice_nb.emulator.rpc import Json, not_found
from multislice_nb.tpu import AcceleratorType

if TYPE_CHECKING:
    from collections.abc import Callable


def _listed_zones(request: Json) -> tuple[names.Parent, list[str]]:
    parent = names.parse_parent(request.get("parent", ""))
    known = zones.all_zones()
    return parent, [zone for zone in known if parent.location in {"-", zone}]


def accelerator_types(request: Json) -> dict[str, Json]:
    """The accelerator types of the request's zone, or of all, by full name."""
    parent, chosen = _listed_zones(request)
    found = {}
    for zone in chosen:
        for name in zones.available_accelerator_types(zone):
            full = names.Parent(parent.project, zone).child("acceleratorTypes", name)
            accelerator = AcceleratorType.parse(name)
            config = {"type": accelerator.generation.api_type, "topology": accelerator.topology}
            found[full] = {"name": full, "type": name, "acceleratorConfigs": [config]}
    return found


def runtime_versions(request: Json) -> dict[str, Json]:
    """The runtime versions of the request's zone, or of all, by full name."""
    parent, chosen = _listed_zones(request)
    found = {}
    for zone in chosen:
        for version in zones.available_runtime_versions(zone):
            full = names.Parent(parent.project, zone).child("runtimeVersions", version)
            found[full] = {"name": full, "version": version}
    return found


def offered(request: Json, collection: str, offer: Callable[[Json], dict[str, Json]]) -> Json:
    """One entry of an offer.

    Raises:
        ApiError: NOT_FOUND.
    """
    name = request.get("name", "")
    parent, _ = names.parse_name(name, collection)
    found = offer({"parent": parent.name}).get(name)
    if found is None:
        raise not_found(name)
    return found


def location(project: str, zone: str) -> Json:
    """A zone as a location."""
    return {
        "name": f"projects/{project}/locations/{zone}",
        "locationId": zone,
        "displayName": zone,
        "labels": {"cloud.googleapis.com/region": zone.rsplit("-", 1)[0]},
    }
