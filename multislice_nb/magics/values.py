"""Which values Tab offers for an argument. Nothing here waits for an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from multislice_nb import tpu
from multislice_nb.errors import AcceleratorTypeError, InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from multislice_nb.widgets.session import Session

__all__ = ["SOURCES", "Asked"]


class Asked:
    """For whom values are looked up: the session, the user's variables, and the line so far.

    Attributes:
        given: Values of other words on the line, by argument name.
    """

    def __init__(self, session: Session, variables: Mapping[str, Any], given: Mapping[str, str]) -> None:
        self.session = session
        self.variables = variables
        self.given = given


def _queued_resources(asked: Asked) -> list[str]:
    asked.session.refresh_names()
    return list(dict.fromkeys([*asked.session.names, *asked.session.elsewhere()]))


def _clusters(asked: Asked) -> list[str]:
    return [cluster.name for cluster in asked.session.clusters()]


def _offered() -> list[tpu.Generation]:
    return [generation for generation in tpu.GENERATIONS if generation.in_cloud_tpu_api]


def _zones(asked: Asked) -> list[str]:
    kinds = _offered()
    try:
        named = asked.given.get("accelerator_type")
        kinds = [tpu.AcceleratorType.parse(named).generation] if named else kinds
    except AcceleratorTypeError:
        pass  # half a name yet: offer them all
    return sorted({zone for kind in kinds for zone in kind.zones})


def _accelerator_types(asked: Asked) -> list[str]:
    zone = asked.given.get("zone")
    if zone is None and asked.session.cloud is not None and not asked.session.cloud.is_emulator:
        zone = asked.session.cloud.zone
    kinds = [kind for kind in _offered() if zone is None or zone in kind.zones] or _offered()
    return [name for kind in kinds for name in tpu.accelerator_types(kind)]


def _types(_: Asked) -> list[str]:
    return [kind.prefix for kind in _offered()]


def _topologies(asked: Asked) -> list[str]:
    wanted = asked.given.get("type")
    kinds = [kind for kind in _offered() if wanted in {None, kind.prefix, kind.name}]
    names = (tpu.AcceleratorType.parse(name) for kind in kinds for name in tpu.accelerator_types(kind))
    return list(dict.fromkeys(one.topology for one in names))


def _runtime_versions(asked: Asked) -> list[str]:
    named = asked.given.get("accelerator_type")
    try:
        kinds = [tpu.AcceleratorType.parse(named).generation] if named else _offered()
    except AcceleratorTypeError:
        kinds = _offered()
    return list(dict.fromkeys(kind.runtime_version for kind in kinds))


def _variables(asked: Asked) -> list[str]:
    return sorted(name for name in asked.variables if not name.startswith("_"))


def _results(asked: Asked) -> list[str]:
    return sorted(
        name
        for name, value in asked.variables.items()
        if type(value).__name__ in {"LargestBatch", "Plan", "Plans", "Results"}
    )


def _strategies(_: Asked) -> list[str]:
    return ["data", "fsdp", "tensor", "fsdp+tensor", "data+fsdp", "data+tensor"]


def _capacities(_: Asked) -> list[str]:
    return ["on-demand", "spot", "reserved"]


def _experiments(_: Asked) -> list[str]:
    from multislice_nb.experiments.catalogue import folder

    return sorted(path.stem for path in folder().glob("[0-9]*.ipynb"))


def _asked_for(asked: Asked) -> dict[str, str]:
    """What the experiment on the line may be asked, with its defaults; nothing where none is named yet."""
    from multislice_nb.experiments.catalogue import asked_for

    try:
        return asked_for(asked.given.get("name", ""))
    except InvalidRequestError:
        return {}


def _parameters(asked: Asked) -> list[str]:
    return list(_asked_for(asked))


def _defaults(asked: Asked) -> list[str]:
    """Of the parameter before it, as its cell has it; what holds blanks would be several words."""
    found = _asked_for(asked).get(asked.given["parameter"], " ")
    return [] if " " in found else [found]


def _generations(_: Asked) -> list[str]:
    return [kind.name for kind in tpu.GENERATIONS]


SOURCES: dict[str, Callable[[Asked], list[str]]] = {
    "accelerator_types": _accelerator_types,
    "capacities": _capacities,
    "clusters": _clusters,
    "defaults": _defaults,
    "experiments": _experiments,
    "generations": _generations,
    "parameters": _parameters,
    "queued_resources": _queued_resources,
    "results": _results,
    "runtime_versions": _runtime_versions,
    "strategies": _strategies,
    "topologies": _topologies,
    "types": _types,
    "variables": _variables,
    "zones": _zones,
}
"""By the table's `values`. Files are IPython's own to complete."""
