"""Which strategies there are for slices of a given shape, and what the overview advises about each."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from multislice_nb import tpu
from multislice_nb.sharding.parallelism import AXES, Parallelism

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["Advice", "advise", "enumerate_strategies"]

Level = Literal["never", "rarely", "it depends"]
_ORDER: dict[Level, int] = {"never": 0, "rarely": 1, "it depends": 2}


@dataclass(frozen=True, slots=True)
class Advice:
    """What the Multislice overview says against a degree of parallelism.

    Attributes:
        level: `never`, `rarely` or `it depends`.
        about: The degree, such as `dcn_tensor`.
        reason: Why, in one sentence.
    """

    level: Level
    about: str
    reason: str

    def __str__(self) -> str:
        return f"{self.about}: {self.level}. {self.reason}"


# Cloud TPU Multislice overview, "ICI parallelism", "Multislice sharding using DCN parallelism" and "Sharding with
# Multislice for maximum performance".
_DCN_TENSOR = Advice(
    "never",
    "dcn_tensor",
    "Tensor parallelism moves activations within every layer, which DCN is too slow for: keep dcn_tensor 1.",
)
_ICI_DATA = Advice(
    "rarely",
    "ici_data",
    "ICI is fast enough that FSDP, which also saves memory, is almost always preferred: keep ici_data 1.",
)
_DCN_FSDP = Advice(
    "it depends",
    "dcn_fsdp",
    "FSDP over DCN frees memory at the price of traffic for parameters beside gradients: for typical language "
    "models on v4 keep dcn_fsdp 1 and dcn_data equal to the slices, and use it when memory is short.",
)


def advise(parallelism: Parallelism) -> tuple[Advice, ...]:
    """What speaks against a parallelism, the gravest first; empty when nothing does.

    Args:
        parallelism: Resolved, without -1.
    """
    found = [
        advice
        for degree, advice in (
            (parallelism.dcn_tensor, _DCN_TENSOR),
            (parallelism.ici_data, _ICI_DATA),
            (parallelism.dcn_fsdp, _DCN_FSDP),
        )
        if degree > 1
    ]
    return tuple(sorted(found, key=lambda advice: _ORDER[advice.level]))


def enumerate_strategies(
    accelerator_type: str | tpu.AcceleratorType,
    slices: int = 1,
    *,
    advised: bool = False,
    splits: Mapping[str, Sequence[int]] | None = None,
) -> tuple[Parallelism, ...]:
    """Every way to divide the work over slices of a shape, the least advised against first.

    Args:
        accelerator_type: Of each slice, such as v4-16.
        slices: How many.
        advised: Leave out what the overview advises against.
        splits: For each axis (`fsdp`, `tensor`), sizes of the model that it must divide.

    Returns:
        Each with both products right. All divisors of the devices and of the slices take part, so there are few:
        10 for one v4-16.

    Raises:
        AcceleratorTypeError: If there is no such slice.
    """
    shape = tpu.AcceleratorType.parse(accelerator_type)
    every = (
        Parallelism(
            ici_data=ici[0],
            ici_fsdp=ici[1],
            ici_tensor=ici[2],
            dcn_data=dcn[0],
            dcn_fsdp=dcn[1],
            dcn_tensor=dcn[2],
        )
        for ici, dcn in itertools.product(_triples(shape.device_count), _triples(slices))
    )
    fitting = [one for one in every if _divides(one, splits or {}) and not (advised and advise(one))]
    return tuple(sorted(fitting, key=_rank))


def _triples(number: int) -> Iterator[tuple[int, int, int]]:
    """Every triple of factors of a number."""
    divisors = [ways for ways in range(1, number + 1) if number % ways == 0]
    for first in divisors:
        for second in divisors:
            if number // first % second == 0:
                yield first, second, number // first // second


def _divides(parallelism: Parallelism, splits: Mapping[str, Sequence[int]]) -> bool:
    ways = dict(zip(AXES, parallelism.mesh_shape, strict=True))
    return all(size % ways[axis] == 0 for axis, sizes in splits.items() for size in sizes)


def _rank(parallelism: Parallelism) -> tuple[object, ...]:
    """Least advised against first, then the most FSDP inside the slice."""
    against = [3 - _ORDER[advice.level] for advice in advise(parallelism)]
    return (max(against, default=0), sum(against), -parallelism.ici_fsdp, -parallelism.ici_tensor)
