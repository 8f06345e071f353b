"""Accelerator types: names such as v4-16, and the slice each one means."""

from __future__ import annotations

import bisect
import difflib
import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from multislice_nb.errors import AcceleratorTypeError
from multislice_nb.tpu.table import GENERATIONS, UNSUPPORTED, generation
from multislice_nb.tpu.topology import Topology, chip_counts, default_topology

if TYPE_CHECKING:
    from multislice_nb.tpu.generation import Generation

__all__ = ["AcceleratorType", "accelerator_types"]

_NAME = re.compile(r"(?P<prefix>[a-z][a-z0-9-]*)-(?P<count>[0-9]{1,6})")
# From this many chips on, a 2D slice is spread over VMs of 4 chips (Cloud TPU documentation, v5e and v6e).
_ONE_VM_CHIPS = 8
_USUAL_SIZES = 8  # as many of the smallest sizes are offered to a misspelt name


@dataclass(frozen=True)
class AcceleratorType:
    """The shape of one slice: what a queued resource asks for, and what JAX will see of it.

    Attributes:
        name: As the Cloud TPU API spells it, such as v4-16 or v5litepod-16.
        generation: The facts of its TPU generation.
        topology: Chips along each dimension, such as 2x2x2.
    """

    name: str
    generation: Generation
    topology: str

    @classmethod
    def parse(cls, name: str | AcceleratorType) -> AcceleratorType:
        """Read the name of an accelerator type.

        Args:
            name: Such as v4-16 (16 TensorCores), v5litepod-16 (16 chips; also v5e-16), v5p-8 or v6e-256. An
                `AcceleratorType` is returned as it is.

        Raises:
            AcceleratorTypeError: If there is no such slice; it names the nearest that exist.
        """
        if isinstance(name, AcceleratorType):
            return name
        found = _NAME.fullmatch(name.strip().lower())
        if found and found["prefix"] in UNSUPPORTED:
            raise _too_old(found["prefix"], int(found["count"]))
        kind = _generation(found["prefix"]) if found else None
        if found is None or kind is None:
            raise _unknown_name(name)
        count = int(found["count"])
        chips, rest = divmod(count, kind.units_per_chip)
        shape = None if rest else default_topology(kind, chips)
        if shape is None:
            raise _no_such_size(kind, count)
        return cls(f"{kind.prefix}-{count}", kind, str(shape))

    @classmethod
    def from_topology(cls, generation_name: str | Generation, topology: str) -> AcceleratorType:
        """The accelerator type of a generation and a shape, such as v4 and 2x2x2.

        Raises:
            AcceleratorTypeError: If no slice of that generation has that shape.
        """
        kind = generation(generation_name)
        shape = Topology.parse(topology)
        if not shape.exists_on(kind):
            raise _no_such_shape(kind, shape)
        return cls(f"{kind.prefix}-{shape.chips * kind.units_per_chip}", kind, str(shape))

    @property
    def shape(self) -> tuple[int, ...]:
        """The topology as numbers."""
        return Topology.parse(self.topology).shape

    @property
    def has_default_topology(self) -> bool:
        """Whether the name alone means this shape; if not, the API needs type and topology."""
        return str(default_topology(self.generation, self.chips)) == self.topology

    @property
    def chips(self) -> int:
        """Chips of the slice."""
        return Topology.parse(self.topology).chips

    @property
    def workers(self) -> int:
        """TPU VMs of the slice. `Hosts` in Google's tables are machines, and are not these."""
        if self.generation.ici_dimensions == 2 and self.chips <= _ONE_VM_CHIPS:
            return 1
        return max(1, self.chips // self.generation.chips_per_host)

    @property
    def chips_per_worker(self) -> int:
        """Chips of each TPU VM."""
        return self.chips // self.workers

    @property
    def device_count(self) -> int:
        """JAX devices of the slice."""
        return self.chips * self.generation.devices_per_chip

    @property
    def devices_per_worker(self) -> int:
        """JAX devices of each TPU VM."""
        return self.device_count // self.workers

    @property
    def cores(self) -> int:
        """TensorCores of the slice."""
        return self.chips * self.generation.cores_per_chip

    @property
    def runtime_version(self) -> str:
        """The default runtime version, empty where the Cloud TPU API has none."""
        return self.generation.runtime_version

    def __str__(self) -> str:
        return self.name


@functools.cache
def _names(kind: Generation) -> tuple[str, ...]:
    return tuple(f"{kind.prefix}-{chips * kind.units_per_chip}" for chips in chip_counts(kind))


def accelerator_types(generation_name: str | Generation) -> tuple[str, ...]:
    """The names of all slices of a generation in their default topology, smallest first.

    Raises:
        AcceleratorTypeError: If there is no such generation.
    """
    return _names(generation(generation_name))


def _generation(prefix: str) -> Generation | None:
    """The generation that a name's first part means; None if it means none."""
    known = {word for kind in GENERATIONS for word in (kind.name, kind.prefix, *kind.aliases)}
    return generation(prefix) if prefix in known else None


def _unknown_name(name: str) -> AcceleratorTypeError:
    offered = [kind for kind in GENERATIONS if kind.in_cloud_tpu_api]
    words = "A name is a TPU type and a size, as in " + ", ".join(_names(kind)[2] for kind in offered) + "."
    hint = _did_you_mean(name)
    return AcceleratorTypeError(
        f"{name!r} is not an accelerator type.", fix=f"{words} Did you mean {hint}?" if hint else words
    )


def _did_you_mean(name: str) -> str:
    """The accelerator type that a misspelt name is likeliest to mean; empty when nothing is near."""
    tidy = re.sub(r"[^a-z0-9]+", "-", name.strip().lower()).removeprefix("tpu-").strip("-")
    match = _NAME.fullmatch(tidy)
    if match and (kind := _generation(_closest(match["prefix"]))):
        near = f"{kind.prefix}-{match['count']}"
        return near if near in _names(kind) else ""
    usual = [known for kind in GENERATIONS for known in _names(kind)[:_USUAL_SIZES]]
    close = difflib.get_close_matches(tidy, usual, n=1, cutoff=0.7)
    return close[0] if close else ""


def _closest(prefix: str) -> str:
    words = [word for kind in GENERATIONS for word in (kind.name, kind.prefix, *kind.aliases)]
    close = difflib.get_close_matches(prefix, words, n=1, cutoff=0.6)
    return close[0] if close else ""


def _too_old(prefix: str, count: int) -> AcceleratorTypeError:
    """The sizes of v2 and v3 count TensorCores, and so do those of v4 and v5p."""
    cores = [kind for kind in GENERATIONS if kind.in_cloud_tpu_api and kind.units_per_chip > 1]
    names = [min(_names(kind), key=lambda name: abs(int(name.rpartition("-")[2]) - count)) for kind in cores]
    return AcceleratorTypeError(
        f"Multislice needs TPU v4 or later; {prefix} has single slices only.",
        fix=f"Nearest in TensorCores: {', '.join(names)}.",
    )


def _no_such_size(kind: Generation, count: int) -> AcceleratorTypeError:
    sizes = [chips * kind.units_per_chip for chips in chip_counts(kind)]
    at = bisect.bisect(sizes, count)
    nearest = ", ".join(f"{kind.prefix}-{size}" for size in sizes[max(0, at - 1) : at + 1])
    shown = ", ".join(map(str, sizes if len(sizes) <= 8 else [*sizes[:5], "..."]))
    return AcceleratorTypeError(
        f"{kind.prefix}-{count} is not a {kind.name} slice: sizes are {shown} {kind.unit}.",
        fix=f"Nearest: {nearest}.",
    )


def _no_such_shape(kind: Generation, shape: Topology) -> AcceleratorTypeError:
    counts = chip_counts(kind)
    at = bisect.bisect_left(counts, shape.chips)
    near = [default_topology(kind, chips) for chips in counts[max(0, at - 1) : at + 2]]
    rule = (
        "two dimensions, up to 16x16"
        if kind.ici_dimensions == 2
        else "2x2x1, 2x2x2, 2x2x4, 2x4x4, or multiples of 4 in ascending order"
    )
    return AcceleratorTypeError(
        f"{shape} is not the shape of a {kind.name} slice: shapes are {rule}, and at most "
        f"{kind.largest_slice_chips} chips.",
        fix=f"Nearest: {', '.join(str(one) for one in near if one)}.",
    )
