"""Names of kinds: generations as the API and gcloud spell them, capacities as the overview does."""

from __future__ import annotations

from typing import Any

from multislice_nb.errors import InvalidRequestError
from multislice_nb.tpu import GENERATIONS, AcceleratorType

__all__ = ["capacity_name", "generation_name", "slice_type_of", "type_name"]


def capacity_name(*, spot: bool, reserved: bool, best_effort: bool = False) -> str:
    """The overview's word for where the capacity comes from."""
    if spot:
        return "spot"
    if reserved:
        return "reserved"
    return "best-effort" if best_effort else "on-demand"


def generation_name(api_type: str) -> str:
    """The generation's own name for `V5LITE_POD`, `v5litepod` or `v5e`."""
    wanted = api_type.lower().replace("_", "").replace("-", "")
    for kind in GENERATIONS:
        if wanted in {kind.name, kind.prefix, kind.api_type.lower().replace("_", "")}:
            return kind.name
    return api_type


def type_name(api_type: str) -> str:
    """Gcloud's spelling of a type, as `v5litepod` for V5LITE_POD."""
    name = generation_name(api_type)
    return next((kind.prefix for kind in GENERATIONS if kind.name == name), api_type)


def slice_type_of(values: dict[str, Any]) -> AcceleratorType | InvalidRequestError | None:
    """The type of each slice by a request's values; the error where it does not exist, None where none is given."""
    try:
        if values["accelerator_type"]:
            return AcceleratorType.parse(values["accelerator_type"])
        if values["type"] and values["topology"]:
            return AcceleratorType.from_topology(generation_name(values["type"]), values["topology"])
    except InvalidRequestError as error:
        return error
    return None
