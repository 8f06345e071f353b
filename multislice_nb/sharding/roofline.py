"""Intensity of what the overview has no formula for: FSDP and tensor parallelism over ICI, pipelines, other models.

ICI formulas are those of the scaling book (jax-ml/scaling-book, training.md), with bits instead of bytes and the
exact (n-1)/n of a collective over n chips.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from multislice_nb import tpu
from multislice_nb.errors import InvalidRequestError
from multislice_nb.sharding.intensity import (
    GRADIENT_BITS,
    MARGIN,
    arithmetic_intensity,
    dcn_bits_per_parameter,
)

__all__ = [
    "DcnCheck",
    "check_dcn",
    "fsdp_intensity",
    "most_tensor_ways",
    "pipeline_intensity",
    "smallest_fsdp_batch",
    "tensor_intensity",
]

_BF16 = 16
# A ring over one ICI axis sends over one link each way at the same time.
_LINKS_PER_AXIS = 2


def fsdp_intensity(tokens_per_chip: float, ways: int, *, parameter_bits: float = _BF16) -> float:
    """FLOPs for each bit over ICI with FSDP inside a slice; the same in both passes.

    Forward 2 * B FLOPs per parameter against an all-gather of it; backward 4 * B against an all-gather and a
    reduce-scatter: 2 B / (bits (n-1)/n).

    Args:
        tokens_per_chip: B, tokens of a step on one chip.
        ways: n, chips that share the parameters.
        parameter_bits: Width of a parameter and of a gradient on ICI.
    """
    _positive(tokens_per_chip=tokens_per_chip, ways=ways, parameter_bits=parameter_bits)
    share = (ways - 1) / ways
    return math.inf if share == 0 else 2 * tokens_per_chip / (parameter_bits * share)


def smallest_fsdp_batch(
    generation: str | tpu.Generation, ways: int, *, axes: int = 1, parameter_bits: float = _BF16
) -> float:
    """Tokens per chip from which ICI does not slow FSDP down.

    Args:
        generation: Such as v4.
        ways: Chips that share the parameters.
        axes: Axes of the slice over which they lie; each adds its links.
        parameter_bits: Width of a parameter and of a gradient on ICI.
    """
    _positive(ways=ways, axes=axes, parameter_bits=parameter_bits)
    return _ici(generation, axes) * parameter_bits * (ways - 1) / ways / 2


def tensor_intensity(feedforward: float, ways: int, *, activation_bits: float = _BF16) -> float:
    """FLOPs for each bit over ICI with tensor parallelism; the batch does not matter.

    A block of two matrix products, [D, F] and [F, D], takes 4 B D F / n FLOPs on each of n chips, and moves its
    activations [B, D] twice (an all-gather before, a reduce-scatter after): 2 F / (bits (n-1)).

    Args:
        feedforward: F, the inner width.
        ways: n, chips that share each layer.
        activation_bits: Width of an activation on ICI.
    """
    _positive(feedforward=feedforward, ways=ways, activation_bits=activation_bits)
    return math.inf if ways == 1 else 2 * feedforward / (activation_bits * (ways - 1))


def most_tensor_ways(
    generation: str | tpu.Generation,
    feedforward: float,
    *,
    axes: int = 1,
    activation_bits: float = _BF16,
) -> int:
    """The most chips that can share each layer before ICI slows them down: the inverse of `tensor_intensity`."""
    _positive(feedforward=feedforward, axes=axes, activation_bits=activation_bits)
    return 1 + math.floor(2 * feedforward / (activation_bits * _ici(generation, axes)) + 1e-9)


def pipeline_intensity(
    parameters: float, depth: int, embedding: int, *, activation_bits: float = _BF16
) -> float:
    """FLOPs for each bit over DCN between stages of a pipeline; the batch does not matter.

    A stage takes 2 P / depth FLOPs per token forward and hands on one activation per token: 2 P / (depth D bits).

    Args:
        parameters: P, of the whole model.
        depth: Stages.
        embedding: D, width of the activation handed on.
        activation_bits: Width of an activation on DCN.
    """
    _positive(parameters=parameters, depth=depth, embedding=embedding, activation_bits=activation_bits)
    return math.inf if depth == 1 else 2 * parameters / (depth * embedding * activation_bits)


@dataclass(frozen=True, slots=True)
class DcnCheck:
    """Whether the all-reduce over DCN hides behind the pass backward, for any model.

    Attributes:
        backward_seconds: The pass backward of one slice.
        all_reduce_seconds: All gradients over DCN, at the hosts' full bandwidth.
    """

    backward_seconds: float
    all_reduce_seconds: float

    @property
    def ratio(self) -> float:
        """How often the all-reduce fits into the pass backward."""
        return math.inf if self.all_reduce_seconds == 0 else self.backward_seconds / self.all_reduce_seconds

    @property
    def hides(self) -> bool:
        """Whether it fits at all."""
        return self.ratio >= 1

    @property
    def hides_with_margin(self) -> bool:
        """Whether it fits with the overview's margin, since DCN may drop packets."""
        return self.ratio >= MARGIN

    def __str__(self) -> str:
        verdict = (
            "with margin" if self.hides_with_margin else "without margin" if self.hides else "not at all"
        )
        return (
            f"backward {self.backward_seconds:.3g} s, all-reduce over DCN {self.all_reduce_seconds:.3g} s: "
            f"hidden {verdict} ({self.ratio:.2f} x)"
        )


def check_dcn(
    accelerator_type: str | tpu.AcceleratorType,
    slices: int,
    *,
    parameters: float,
    backward_seconds: float | None = None,
    backward_flops: float | None = None,
    exact: bool = True,
    gradient_bits: float = GRADIENT_BITS,
) -> DcnCheck:
    """Compare the pass backward of any model with the all-reduce of its gradients over DCN.

    The overview's way for models other than Transformers: time the pass backward with a profiler, or count its
    FLOPs, and compare.

    Args:
        accelerator_type: Of each slice.
        slices: How many.
        parameters: Of the whole model.
        backward_seconds: Measured, for one slice; or
        backward_flops: counted, for one slice, taken at the chips' peak.
        exact: See `dcn_bits_per_parameter`.
        gradient_bits: Width of a gradient on DCN.

    Raises:
        InvalidRequestError: If not exactly one of time and FLOPs is given, or a number is not positive.
    """
    shape = tpu.AcceleratorType.parse(accelerator_type)
    if (backward_seconds is None) == (backward_flops is None):
        raise InvalidRequestError(
            "The pass backward is known by its time or by its FLOPs.", fix="Give exactly one of them."
        )
    peak = shape.generation.bf16_flops_per_chip * shape.chips
    seconds = backward_seconds if backward_seconds is not None else (backward_flops or 0.0) / peak
    _positive(parameters=parameters, backward=seconds)
    bits = parameters * dcn_bits_per_parameter(slices, exact=exact, gradient_bits=gradient_bits)
    return DcnCheck(seconds, bits / (shape.generation.dcn_bits_per_second_per_chip * shape.chips))


def _ici(generation: str | tpu.Generation, axes: int) -> float:
    """FLOPs per bit of a chip over the links of some ICI axes."""
    return arithmetic_intensity(generation, "ici link") / (_LINKS_PER_AXIS * axes)


def _positive(**numbers: float) -> None:
    for name, number in numbers.items():
        if not number > 0:
            raise InvalidRequestError(f"{name} cannot be {number}.", fix="Give a number above zero.")
