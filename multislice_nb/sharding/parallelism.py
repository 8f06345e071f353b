"""How many ways each kind of parallelism divides the work, inside a slice and between slices."""

from __future__ import annotations

import dataclasses
import math
from numbers import Integral
from typing import TYPE_CHECKING

from multislice_nb.errors import ParallelismError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["AXES", "Parallelism", "check_shape"]

AXES = ("data", "fsdp", "tensor")
_WORDS = {"data": "data", "fsdp": "FSDP", "tensor": "tensor"}
_INFERRED = -1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parallelism:
    """Degrees of parallelism over ICI (inside a slice) and over DCN (between slices).

    The product of the three ICI degrees is the number of JAX devices of a slice (its chips; twice that on
    TPU7x), the product of the three DCN degrees the number of slices. One ICI degree and one DCN degree may be
    -1: `resolve` infers them.

    Args:
        ici_data: Replicas of the parameters inside a slice, each with its part of the batch.
        ici_fsdp: Parts of batch and parameters inside a slice (fully sharded data parallelism).
        ici_tensor: Parts of each layer's features inside a slice.
        dcn_data: Replicas of the parameters over slices.
        dcn_fsdp: Parts of batch and parameters over slices.
        dcn_tensor: Parts of each layer's features over slices; DCN is too slow for it.

    Raises:
        ParallelismError: If a degree is neither positive nor -1, or -1 stands twice for ICI or for DCN.
    """

    ici_data: int = 1
    ici_fsdp: int = 1
    ici_tensor: int = 1
    dcn_data: int = 1
    dcn_fsdp: int = 1
    dcn_tensor: int = 1

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            whole = isinstance(value, int) and not isinstance(value, bool)
            if not whole or (value < 1 and value != _INFERRED):
                raise ParallelismError(
                    f"{field.name} cannot be {value!r}.",
                    fix="Give a whole number from 1, or -1 to have it inferred.",
                )
        for network in ("ici", "dcn"):
            left_out = [name for name, value in _degrees(self, network) if value == _INFERRED]
            if len(left_out) > 1:
                raise ParallelismError(
                    f"{' and '.join(left_out)} are both -1.", fix="At most one of them can be inferred."
                )

    @property
    def ici(self) -> tuple[int, int, int]:
        """The degrees inside a slice, in mesh axis order: data, fsdp, tensor."""
        return (self.ici_data, self.ici_fsdp, self.ici_tensor)

    @property
    def dcn(self) -> tuple[int, int, int]:
        """The degrees between slices, in mesh axis order: data, fsdp, tensor."""
        return (self.dcn_data, self.dcn_fsdp, self.dcn_tensor)

    @property
    def is_resolved(self) -> bool:
        """Whether no degree is left to be inferred."""
        return _INFERRED not in (*self.ici, *self.dcn)

    @property
    def chips_per_slice(self) -> int:
        """JAX devices of a slice that it is for."""
        return math.prod(self._resolved().ici)

    @property
    def slices(self) -> int:
        """Slices that it is for."""
        return math.prod(self._resolved().dcn)

    @property
    def device_count(self) -> int:
        """JAX devices of all slices together."""
        return self.chips_per_slice * self.slices

    @property
    def mesh_shape(self) -> tuple[int, int, int]:
        """The size of each mesh axis: data, fsdp, tensor, ICI and DCN together."""
        resolved = self._resolved()
        data, fsdp, tensor = (
            inside * between for inside, between in zip(resolved.ici, resolved.dcn, strict=True)
        )
        return (data, fsdp, tensor)

    @property
    def batch_ways(self) -> int:
        """Parts into which the batch is divided: over the data and fsdp axes."""
        return self.mesh_shape[0] * self.mesh_shape[1]

    @property
    def name(self) -> str:
        """What people call it, such as `4-way FSDP + 2-way data over DCN`."""
        inside = [_word(axis, ways) for axis, ways in zip(AXES, self.ici, strict=True) if ways != 1]
        between = [
            f"{_word(axis, ways)} over DCN" for axis, ways in zip(AXES, self.dcn, strict=True) if ways != 1
        ]
        return " + ".join([*inside, *between]) or "unsharded"

    def resolve(self, chips_per_slice: int, slices: int = 1) -> Parallelism:
        """The same with every -1 inferred and both products checked.

        Args:
            chips_per_slice: JAX devices of a slice.
            slices: Number of slices.

        Raises:
            ParallelismError: If a product does not come out; it names the product and what would fit.
        """
        check_shape(chips_per_slice, slices)
        inside = _fit(
            dict(_degrees(self, "ici")), chips_per_slice, f"a slice has {_count(chips_per_slice, 'chip')}"
        )
        between = _fit(dict(_degrees(self, "dcn")), slices, f"there {_are(slices)} {_count(slices, 'slice')}")
        return Parallelism(**inside, **between)

    def _resolved(self) -> Parallelism:
        if not self.is_resolved:
            raise ParallelismError(
                f"{self.name} leaves a degree to be inferred.",
                fix="Call resolve(chips_per_slice, slices) first.",
            )
        return self

    def __str__(self) -> str:
        return self.name


def check_shape(chips_per_slice: int, slices: int) -> None:
    """Refuse a shape without slices, or without devices in them.

    Raises:
        ParallelismError: One of them is less than 1.
    """
    for thing, number in (("chips per slice", chips_per_slice), ("slices", slices)):
        if not isinstance(number, Integral) or number < 1:
            raise ParallelismError(
                f"There cannot be {number!r} {thing}.", fix="Give a whole number of at least 1."
            )


def _degrees(parallelism: Parallelism, network: str) -> Iterator[tuple[str, int]]:
    return ((f"{network}_{axis}", getattr(parallelism, f"{network}_{axis}")) for axis in AXES)


def _fit(degrees: dict[str, int], wanted: int, fact: str) -> dict[str, int]:
    """The degrees with -1 inferred so that their product is `wanted`."""
    given = math.prod(value for value in degrees.values() if value != _INFERRED)
    rest, remainder = divmod(wanted, given)
    if _INFERRED in degrees.values() and not remainder:
        return {name: rest if value == _INFERRED else value for name, value in degrees.items()}
    if _INFERRED not in degrees.values() and given == wanted:
        return degrees
    shown = " x ".join(f"{name} {value}" for name, value in degrees.items() if value != _INFERRED)
    raise ParallelismError(f"{shown} = {given}, but {fact}.", fix=_what_fits(degrees, wanted))


def _what_fits(degrees: dict[str, int], wanted: int) -> str:
    """For each degree, the value that would make the product right with the others kept."""
    known = {name: value for name, value in degrees.items() if value != _INFERRED}
    choices = []
    for name in known:
        others = math.prod(value for other, value in known.items() if other != name)
        if wanted % others == 0:
            choices.append(f"{name} {wanted // others}")
    if choices:
        return f"Would fit, with the others kept: {', or '.join(choices)}."
    divisors = [str(ways) for ways in range(1, wanted + 1) if wanted % ways == 0]
    return f"Each degree must divide {wanted}: {', '.join(divisors)}."


def _word(axis: str, ways: int) -> str:
    return _WORDS[axis] if ways == _INFERRED else f"{ways}-way {_WORDS[axis]}"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _are(number: int) -> str:
    return "is" if number == 1 else "are"
