"""Arithmetic intensity of the hardware and operational intensity of training: when does DCN not slow it down?

The formulas are those of the Cloud TPU Multislice overview, "Sharding with Multislice for maximum performance".
The pass backward of a Transformer takes about 4 FLOPs per parameter and token; the gradient of each parameter
crosses DCN once per step, as 32 bits with two slices and up to 64 with more (an all-reduce around a ring of n
carries 2(n-1)/n times the data). Training scales over slices when FLOPs per bit exceed what the hardware has.
"""

from __future__ import annotations

import math
from numbers import Real
from typing import Literal

from multislice_nb import tpu
from multislice_nb.errors import InvalidRequestError

__all__ = [
    "BACKWARD_FLOPS_PER_PARAMETER_AND_TOKEN",
    "GRADIENT_BITS",
    "MARGIN",
    "MAX_SLICES",
    "advised_batch",
    "arithmetic_intensity",
    "dcn_bits_per_parameter",
    "operational_intensity",
    "ring_factor",
    "slices_for_batch",
    "smallest_batch",
]

BACKWARD_FLOPS_PER_PARAMETER_AND_TOKEN = 4  # Multislice overview: 4 * B of the 6 * B FLOPs per parameter
GRADIENT_BITS = 32  # Multislice overview: 32 bits per parameter with two slices, so gradients are float32
MAX_SLICES = 256  # Multislice overview: "limited to 256 slices"
# Multislice overview: DCN may drop packets for a moment, so use data parallelism from 350 000 tokens per slice
# (two slices, where 176 000 would do) or 700 000 (more, where 352 000 would).
MARGIN = 350_000 / 176_000

Network = Literal["dcn", "ici", "ici link", "hbm"]


def arithmetic_intensity(generation: str | tpu.Generation, against: Network = "dcn") -> float:
    """What the hardware can compute while one bit crosses a network or memory, in FLOPs per bit.

    Args:
        generation: Such as v4, or a `tpu.Generation` with numbers of your own.
        against: `dcn` (a host's chips over its DCN bandwidth; for v4 4 x 275e12 / 50e9 = 22 000), `ici` (a
            chip over all its ICI links, one way), `ici link` (a chip over one of them), `hbm` (a chip over its
            memory).

    Raises:
        AcceleratorTypeError: If there is no such generation.
        InvalidRequestError: If there is no such network.
    """
    kind = tpu.generation(generation)
    bits_per_second = {
        "dcn": kind.dcn_bits_per_second_per_chip,
        "ici": kind.ici_bytes_per_second * 8,
        "ici link": kind.ici_bytes_per_second_per_link * 8,
        "hbm": kind.hbm_bytes_per_second * 8,
    }
    if against not in bits_per_second:
        raise InvalidRequestError(
            f"{against!r} is not a network of a TPU.", fix=f"Choose {', '.join(bits_per_second)}."
        )
    return kind.bf16_flops_per_chip / bits_per_second[against]


def ring_factor(members: int) -> float:
    """How often the data crosses each link in an all-reduce around a ring of that many: 2(n-1)/n."""
    if members < 1:
        raise InvalidRequestError(f"A ring cannot have {members} members.", fix="Give at least one member.")
    return 2 * (members - 1) / members


def dcn_bits_per_parameter(
    slices: int = 2,
    *,
    exact: bool = False,
    gradient_bits: float = GRADIENT_BITS,
    parameter_bits: float | None = None,
    gathers: int = 2,
) -> float:
    """Bits of DCN traffic for each parameter and step, per slice.

    With data parallelism gradients are all-reduced over slices. With FSDP over slices they are reduce-scattered,
    and parameters are all-gathered before the pass forward and again before the pass backward; in bf16 that comes
    to the same, which is why the overview treats both alike.

    Args:
        slices: Number of slices.
        exact: False gives the overview's bounds (32 for two slices, 64 for more), True the ring's exact
            traffic, which lies between them.
        gradient_bits: Width of a gradient: 32, or 16 when gradients cross DCN in bf16.
        parameter_bits: Width of a parameter with FSDP over slices, such as 16; None for data parallelism.
        gathers: How often FSDP gathers each parameter in a step: 2, or 1 when the pass backward finds them kept.

    Raises:
        InvalidRequestError: If there is no slice or no width.
    """
    widths = (gradient_bits, 1 if parameter_bits is None else parameter_bits, gathers)
    if not isinstance(slices, Real) or slices < 1:
        raise InvalidRequestError(f"There cannot be {slices!r} slices.", fix="Give a number of at least 1.")
    if not min(widths) > 0:
        raise InvalidRequestError(
            f"Gradients of {gradient_bits} bits and parameters of {parameter_bits} cannot be sent.",
            fix="Give widths above zero.",
        )
    halves = 2 * gradient_bits if parameter_bits is None else gradient_bits + gathers * parameter_bits
    if exact or slices == 1:
        return halves * ring_factor(slices) / 2
    return halves / 2 if slices == 2 else halves


def operational_intensity(
    tokens_per_slice: float,
    slices: int = 2,
    *,
    exact: bool = False,
    gradient_bits: float = GRADIENT_BITS,
    parameter_bits: float | None = None,
    backward_flops: float = BACKWARD_FLOPS_PER_PARAMETER_AND_TOKEN,
) -> float:
    """FLOPs of the pass backward for each bit over DCN, with data parallelism or FSDP between slices.

    Args:
        tokens_per_slice: Batch of one slice, in tokens per step.
        slices: Number of slices. One slice sends nothing: the answer is infinite.
        exact: See `dcn_bits_per_parameter`; by default 4 * B / 32 with two slices, 4 * B / 64 with more.
        gradient_bits: Width of a gradient on DCN.
        parameter_bits: Width of a parameter with FSDP between slices, such as 16; None for data parallelism.
        backward_flops: FLOPs of the pass backward per parameter and token; 4 for a Transformer.

    Raises:
        InvalidRequestError: If a number is not positive.
    """
    if tokens_per_slice < 0 or not backward_flops > 0:
        raise InvalidRequestError(
            f"{tokens_per_slice} tokens with {backward_flops} FLOPs each are no batch.",
            fix="Give positive numbers.",
        )
    bits = dcn_bits_per_parameter(
        slices, exact=exact, gradient_bits=gradient_bits, parameter_bits=parameter_bits
    )
    return math.inf if bits == 0 else backward_flops * tokens_per_slice / bits


def smallest_batch(
    generation: str | tpu.Generation,
    slices: int = 2,
    *,
    exact: bool = False,
    gradient_bits: float = GRADIENT_BITS,
    parameter_bits: float | None = None,
    backward_flops: float = BACKWARD_FLOPS_PER_PARAMETER_AND_TOKEN,
) -> float:
    """Tokens per slice and step from which DCN does not slow training down.

    For v4: 176 000 with two slices, 352 000 with more. See `advised_batch` for the overview's advice, which has
    a margin. Arguments are those of `arithmetic_intensity` and `operational_intensity`.
    """
    bits = dcn_bits_per_parameter(
        slices, exact=exact, gradient_bits=gradient_bits, parameter_bits=parameter_bits
    )
    return arithmetic_intensity(generation) * bits / backward_flops


def advised_batch(
    generation: str | tpu.Generation,
    slices: int = 2,
    *,
    exact: bool = False,
    gradient_bits: float = GRADIENT_BITS,
    parameter_bits: float | None = None,
    backward_flops: float = BACKWARD_FLOPS_PER_PARAMETER_AND_TOKEN,
) -> float:
    """Tokens per slice and step that the overview advises: with a margin of 1.99, since DCN may drop packets.

    For v4: 350 000 with two slices, 700 000 with more.
    """
    return MARGIN * smallest_batch(
        generation,
        slices,
        exact=exact,
        gradient_bits=gradient_bits,
        parameter_bits=parameter_bits,
        backward_flops=backward_flops,
    )


def slices_for_batch(
    generation: str | tpu.Generation,
    tokens: float,
    *,
    margin: bool = True,
    exact: bool = False,
    gradient_bits: float = GRADIENT_BITS,
    parameter_bits: float | None = None,
    backward_flops: float = BACKWARD_FLOPS_PER_PARAMETER_AND_TOKEN,
) -> int:
    """The most slices that a batch can feed: the inverse of `advised_batch`, or of `smallest_batch`.

    Args:
        generation: Such as v4.
        tokens: Batch of all slices together, in tokens per step.
        margin: Whether to keep the overview's margin.
        exact: See `dcn_bits_per_parameter`.
        gradient_bits: Width of a gradient on DCN.
        parameter_bits: Width of a parameter with FSDP between slices, such as 16; None for data parallelism.
        backward_flops: FLOPs of the pass backward per parameter and token.

    Returns:
        From 1 (one slice needs no DCN) to 256 (the most that Multislice has).
    """
    needed = advised_batch if margin else smallest_batch
    return max(
        slices
        for slices in range(1, MAX_SLICES + 1)
        if slices == 1
        or tokens / slices
        >= needed(
            generation,
            slices,
            exact=exact,
            gradient_bits=gradient_bits,
            parameter_bits=parameter_bits,
            backward_flops=backward_flops,
        )
    )
