"""How the chips of a slice are arranged: which shapes exist, and which one a number of chips means."""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from multislice_nb.errors import AcceleratorTypeError

if TYPE_CHECKING:
    from multislice_nb.tpu.generation import Generation

__all__ = ["Topology", "chip_counts", "default_topology", "topologies"]

_SHAPE = re.compile(r"[1-9][0-9]{0,3}(?:x[1-9][0-9]{0,3}){1,2}")
# Cloud TPU documentation, "TPU types and topologies" and the pages of v4, v5e, v5p, v6e and tpu7x: a 2D slice
# is one of eight; a 3D slice is one of a few small ones, or A x B x C with each a multiple of 4.
_FLAT = ("1x1", "2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")
_SMALL_CUBIC = ("2x2x1", "2x2x2", "2x2x4", "2x4x4")
_SINGLE_CHIP_CUBIC = "1x1x1"  # offered by tpu7x alone
# xpk's system_characteristics.py and maxtext's accelerator_to_spec_map.py list no longer edge.
_LONGEST_EDGE = 256


@dataclass(frozen=True, slots=True)
class Topology:
    """The shape of a slice in chips, such as 2x2x2."""

    shape: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Topology:
        """Read a shape such as `2x2x2`.

        Raises:
            AcceleratorTypeError: If it is not two or three numbers joined by x.
        """
        word = text.strip().lower()
        if not _SHAPE.fullmatch(word):
            raise AcceleratorTypeError(
                f"{text!r} is not a topology.",
                fix="Give the chips along each dimension, such as 2x2x2 or 4x4.",
            )
        return cls(tuple(int(edge) for edge in word.split("x")))

    @property
    def chips(self) -> int:
        """How many chips it has."""
        return math.prod(self.shape)

    def __str__(self) -> str:
        return "x".join(map(str, self.shape))

    def exists_on(self, generation: Generation) -> bool:
        """Whether a slice of that generation can have this shape."""
        if self.chips > generation.largest_slice_chips or max(self.shape) > _LONGEST_EDGE:
            return False
        if generation.ici_dimensions == 2:
            return str(self) in _FLAT
        if len(self.shape) != 3:
            return False
        if str(self) == _SINGLE_CHIP_CUBIC:
            return generation.devices_per_chip > 1
        cubes = all(edge % 4 == 0 for edge in self.shape) and list(self.shape) == sorted(self.shape)
        return cubes or str(self) in _SMALL_CUBIC


@functools.cache
def _most_cubic(cubes: int) -> tuple[int, int, int]:
    """The three edges, in order, whose product is `cubes` and whose sum is smallest.

    Cloud TPU documentation, "Topology variants": the default topology of a number of chips is the one most
    like a cube.
    """
    edges = [
        (a, b, cubes // (a * b))
        for a in range(1, round(cubes ** (1 / 3)) + 2)
        if cubes % a == 0
        for b in range(a, math.isqrt(cubes // a) + 1)
        if cubes // a % b == 0
    ]
    return min(edges, key=sum)


def default_topology(generation: Generation, chips: int) -> Topology | None:
    """The shape that a number of chips means when none is named, or None if no slice has that many."""
    if chips < 1 or chips > generation.largest_slice_chips:
        return None
    shapes = _FLAT if generation.ici_dimensions == 2 else (_SINGLE_CHIP_CUBIC, *_SMALL_CUBIC)
    for shape in map(Topology.parse, shapes):
        if shape.chips == chips and shape.exists_on(generation):
            return shape
    if generation.ici_dimensions == 2 or chips % 64:
        return None
    a, b, c = _most_cubic(chips // 64)
    cubes = Topology((4 * a, 4 * b, 4 * c))
    return cubes if cubes.exists_on(generation) else None


def chip_counts(generation: Generation) -> tuple[int, ...]:
    """Every number of chips that a slice of that generation can have, smallest first."""
    few = (chips for chips in range(1, 64) if default_topology(generation, chips))
    many = (
        chips
        for chips in range(64, generation.largest_slice_chips + 1, 64)
        if default_topology(generation, chips)
    )
    return (*few, *many)


def topologies(generation: Generation, chips: int) -> tuple[Topology, ...]:
    """All shapes that a slice of that many chips can have, the default one first."""
    default = default_topology(generation, chips)
    if default is None:
        return ()
    if generation.ici_dimensions == 2 or chips % 64:
        return (default,)
    cubes = chips // 64
    shapes = [
        Topology((4 * a, 4 * b, 4 * cubes // (a * b)))
        for a in range(1, cubes + 1)
        if cubes % a == 0
        for b in range(a, cubes // a + 1)
        if cubes // a % b == 0
    ]
    others = [shape for shape in shapes if shape != default and shape.exists_on(generation)]
    return (default, *sorted(others, key=lambda shape: max(shape.shape)))
