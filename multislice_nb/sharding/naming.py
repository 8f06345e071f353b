"""Strategies by the names people use: "fsdp", "4-way FSDP", "2-way FSDP + 2-way tensor", "dcn_data=2, fsdp"."""

from __future__ import annotations

import difflib
import math
import re
from dataclasses import dataclass

from multislice_nb.errors import ParallelismError
from multislice_nb.sharding.parallelism import AXES, Parallelism, check_shape

__all__ = ["parse_strategy"]

_SYNONYMS = {
    "data": "data",
    "dp": "data",
    "ddp": "data",
    "fsdp": "fsdp",
    "zero3": "fsdp",
    "tensor": "tensor",
    "tp": "tensor",
}
_PART = re.compile(
    r"(?:(?P<ways>[0-9]+)[- ]?way )?"
    r"(?:(?P<prefix>ici|dcn)[_ ])?"
    r"(?P<axis>[a-z]+[0-9]*?)"
    r"(?:[_ ]parallelism)?"
    r"(?: ?[=:]? ?(?P<number>-1|[0-9]+))?"
    r"(?: over (?:the )?(?P<suffix>ici|dcn))?"
)
_SEPARATORS = re.compile(r"\s*(?:\+|,|;|&|\band\b|--)\s*")
_INFERRED = -1
_UNSHARDED = "unsharded"


@dataclass(frozen=True, slots=True)
class _Part:
    network: str
    axis: str
    ways: int | None


def parse_strategy(text: str | Parallelism, chips_per_slice: int, slices: int = 1) -> Parallelism:
    """The parallelism that a strategy's name means on slices of a given size.

    `unsharded` divides nothing inside a slice, which is right for slices of one device alone.
    Degrees that are not named are inferred: one axis takes all devices, two share them as evenly as they can be
    divided, the first taking the larger part. Between slices the batch is divided (data parallelism), unless
    the text says something about DCN; inside a slice that the text does not mention, FSDP takes all.

    Args:
        text: Such as `fsdp`, `tensor`, `data`, `fsdp+tensor`, `4-way FSDP`, `2-way FSDP + 2-way tensor`,
            `8-way FSDP + 2-way data over DCN`, `ici_fsdp_parallelism=4 + dcn_data_parallelism=2`.
        chips_per_slice: JAX devices of a slice.
        slices: Number of slices.

    Raises:
        ParallelismError: If it is not a strategy, or does not fit these slices.
    """
    check_shape(chips_per_slice, slices)
    if isinstance(text, Parallelism):
        return text.resolve(chips_per_slice, slices)
    words = [part for part in _SEPARATORS.split(_tidy(text)) if part]
    parts = [_read(part, text) for part in words if part != _UNSHARDED]
    named = [(part.network, part.axis) for part in parts]
    twice = next((f"{network}_{axis}" for network, axis in named if named.count((network, axis)) > 1), None)
    if twice:
        raise ParallelismError(f"{text!r} names {twice} twice.", fix="Name each axis once.")
    if not words:
        raise _not_a_strategy(text)
    whole = [_Part("ici", "fsdp", 1 if _UNSHARDED in words else None)]
    inside = [part for part in parts if part.network == "ici"] or whole
    between = [part for part in parts if part.network == "dcn"] or [_Part("dcn", "data", None)]
    degrees = _share(inside, chips_per_slice) | _share(between, slices)
    return Parallelism(**degrees).resolve(chips_per_slice, slices)


def _tidy(text: str) -> str:
    return re.sub(r"\s+", " ", text.strip().lower().strip("-"))


def _read(part: str, text: str) -> _Part:
    found = _PART.fullmatch(part)
    axis = _SYNONYMS.get(found["axis"]) if found else None
    if found is None or axis is None or (found["ways"] and found["number"]):
        raise _not_a_strategy(text, part)
    count = found["ways"] or found["number"]
    return _Part(
        network=found["prefix"] or found["suffix"] or "ici",
        axis=axis,
        ways=None if count in {None, str(_INFERRED)} else int(count),
    )


def _share(parts: list[_Part], devices: int) -> dict[str, int]:
    """The degree of each part: as named, and for those without a number, an even share of what is left."""
    named = math.prod(part.ways for part in parts if part.ways is not None)
    left = devices // named if named and devices % named == 0 else 1
    shares = iter(_even_factors(left, sum(part.ways is None for part in parts)))
    return {f"{part.network}_{part.axis}": next(shares) if part.ways is None else part.ways for part in parts}


def _even_factors(number: int, count: int) -> tuple[int, ...]:
    """`count` factors of `number`, largest first, as equal as they can be."""
    if count == 0:
        return ()
    if count == 1:
        return (number,)
    target = number ** (1 / count)
    smallest = max(ways for ways in range(1, int(target + 1e-9) + 1) if number % ways == 0)
    return (*_even_factors(number // smallest, count - 1), smallest)


def _not_a_strategy(text: str, part: str = "") -> ParallelismError:
    words = difflib.get_close_matches(re.sub("[^a-z]", "", part), _SYNONYMS, n=1, cutoff=0.5)
    hint = f" Did you mean {_SYNONYMS[words[0]]}?" if words else ""
    return ParallelismError(
        f"{text!r} is not a strategy.",
        fix=f"Axes are {', '.join(AXES)}, as in fsdp, 4-way FSDP, fsdp+tensor or dcn_data=2 + fsdp.{hint}",
    )
