"""What each zone offers: accelerator types and runtime versions."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from multislice_nb.tpu import GENERATIONS, accelerator_types

if TYPE_CHECKING:
    from multislice_nb.tpu import Generation

# Versions of the Cloud TPU documentation's tables besides each generation's recommended one.
_COMMON_VERSIONS = (
    "tpu-ubuntu2204-base",
    "tpu-vm-base",
    "tpu-vm-tf-2.16.1-pjrt",
    "tpu-vm-tf-2.16.1-pod-pjrt",
    "tpu-vm-tf-2.17.0-pjrt",
    "tpu-vm-tf-2.17.0-pod-pjrt",
    "tpu-vm-tf-2.18.0-pjrt",
    "tpu-vm-tf-2.18.0-pod-pjrt",
    "tpu-vm-v4-base",
)


def zones_of(generation: Generation) -> tuple[str, ...]:
    """Where a generation is offered through the Cloud TPU API; nowhere for one that is not."""
    return generation.zones if generation.in_cloud_tpu_api else ()


@functools.cache
def all_zones() -> tuple[str, ...]:
    """All zones with TPUs."""
    return tuple(sorted({zone for generation in GENERATIONS for zone in zones_of(generation)}))


def generations_in(zone: str) -> list[Generation]:
    """The generations that a zone offers."""
    return [generation for generation in GENERATIONS if zone in zones_of(generation)]


@functools.cache
def available_accelerator_types(zone: str) -> tuple[str, ...]:
    """The names of a zone's accelerator types."""
    return tuple(name for generation in generations_in(zone) for name in accelerator_types(generation))


@functools.cache
def available_runtime_versions(zone: str) -> tuple[str, ...]:
    """The names of a zone's runtime versions."""
    own = {generation.runtime_version for generation in generations_in(zone)}
    return tuple(sorted(own | set(_COMMON_VERSIONS)))


@functools.cache
def _all_runtime_versions() -> frozenset[str]:
    return frozenset(version for zone in all_zones() for version in available_runtime_versions(zone))


def check_runtime_version(version: str) -> bool:
    """Whether there is such a runtime version anywhere."""
    return version in _all_runtime_versions()
