"""Sharding: degrees of parallelism, meshes, and the arithmetic of when slices scale."""

from __future__ import annotations

from multislice_nb.sharding.intensity import (
    advised_batch,
    arithmetic_intensity,
    dcn_bits_per_parameter,
    operational_intensity,
    ring_factor,
    slices_for_batch,
    smallest_batch,
)
from multislice_nb.sharding.mesh import make_mesh
from multislice_nb.sharding.naming import parse_strategy
from multislice_nb.sharding.parallelism import AXES, Parallelism

__all__ = [
    "AXES",
    "Parallelism",
    "advised_batch",
    "arithmetic_intensity",
    "dcn_bits_per_parameter",
    "make_mesh",
    "operational_intensity",
    "parse_strategy",
    "ring_factor",
    "slices_for_batch",
    "smallest_batch",
]
