"""What forms offer: zones, accelerator types and runtime versions, from the facts about TPUs."""

from __future__ import annotations

from multislice_nb import tpu

__all__ = ["runtimes", "types", "zones"]

_LARGEST = 13
"""The power of two that sizes end at; in between are more shapes than a list can hold."""


def zones() -> list[str]:
    """All zones that have TPUs."""
    return sorted({zone for kind in _offered() for zone in kind.zones})


def types(zone: str = "", *, multislice: bool = False) -> list[str]:
    """Accelerator types of a zone, in powers of two; of all zones where it has none or none is named.

    Args:
        zone: Such as `us-central2-b`.
        multislice: Only those that several slices can be made of.
    """
    kinds = [kind for kind in _offered() if kind.multislice or not multislice]
    kinds = [kind for kind in kinds if zone in kind.zones] or kinds
    names = ((kind, f"{kind.prefix}-{2**power}") for kind in kinds for power in range(_LARGEST + 1))
    return [name for kind, name in names if name in tpu.accelerator_types(kind)]


def runtimes() -> list[str]:
    """The generations' own runtime versions."""
    return list(dict.fromkeys(kind.runtime_version for kind in _offered()))


def _offered() -> list[tpu.Generation]:
    return [kind for kind in tpu.GENERATIONS if kind.in_cloud_tpu_api]
