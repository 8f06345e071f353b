"""How long a step takes: compute, HBM, ICI and DCN, and what of each hides behind the others.

The model is a roofline. Compute and HBM run at the same time, so the slower counts; what passes over HBM without a
large matrix product, as attention does, comes after it. Collectives over ICI are not
hidden, which is how XLA's TPU compiler schedules them by default (an all-gather before its matrix product). DCN
hides behind the pass backward but for the gradients that come last, those of the first layer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from multislice_nb import tpu
from multislice_nb.sharding.calibration import Calibration
from multislice_nb.sharding.closed_forms import hbm_bytes, traffic
from multislice_nb.sharding.naming import parse_strategy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from multislice_nb.sharding.model import Model
    from multislice_nb.sharding.parallelism import Parallelism

__all__ = ["Prediction", "ici_bytes_per_second", "predict"]

# Multislice overview: of the 6 * B FLOPs per parameter 4 * B are the pass backward.
BACKWARD_SHARE = 4 / 6
# scaling-book, tpus.md: v5e and v6e wrap around only an axis of 16, v4 and v5p slices made of 4x4x4 cubes.
_FLAT_WRAP = 16
_CUBE = 4


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A step in its parts, on one chip.

    Attributes:
        flops: FLOPs of the step.
        peak: Peak FLOP/s.
        compute_seconds: Matrix products, at the efficiency of the calibration.
        hbm_seconds: Reading and writing HBM, at the same time as compute.
        ici_seconds: All collectives over ICI.
        dcn_seconds: All traffic over DCN.
        exposed_dcn_seconds: What of it does not hide behind the pass backward.
        streamed_seconds: Passes over HBM that no large matrix product hides.
    """

    flops: float
    peak: float
    compute_seconds: float
    hbm_seconds: float
    ici_seconds: float
    dcn_seconds: float
    exposed_dcn_seconds: float
    streamed_seconds: float = 0.0

    @property
    def step_seconds(self) -> float:
        """The whole step."""
        busy = max(self.compute_seconds, self.hbm_seconds) + self.streamed_seconds
        return busy + self.ici_seconds + self.exposed_dcn_seconds

    @property
    def tflops_per_chip(self) -> float:
        """TFLOP/s that the chip reaches."""
        return self.flops / self.step_seconds / 1e12

    @property
    def utilisation(self) -> float:
        """Share of the peak."""
        return self.flops / self.step_seconds / self.peak

    @property
    def bound(self) -> str:
        """What takes most of the step: compute, HBM, ICI or DCN."""
        return max(self.breakdown, key=lambda part: self.breakdown[part])

    @property
    def breakdown(self) -> dict[str, float]:
        """Seconds of the step by part; they add up to it. HBM is what does not hide behind compute, if anything."""
        hidden = self.hbm_seconds <= self.compute_seconds
        busy = {"compute": self.compute_seconds} if hidden else {}
        alone = self.streamed_seconds + (0.0 if hidden else self.hbm_seconds)
        hbm = {"HBM": alone} if alone else {}
        return {**busy, **hbm, "ICI": self.ici_seconds, "DCN": self.exposed_dcn_seconds}

    def __str__(self) -> str:
        return (
            f"{self.tflops_per_chip:.0f} TFLOP/s a chip ({self.utilisation:.0%} of peak), "
            f"{_milliseconds(self.step_seconds)} a step, bound by {self.bound}"
        )


def predict(
    model: Model,
    accelerator_type: str | tpu.AcceleratorType,
    *,
    batch_per_chip: float,
    slices: int = 1,
    strategy: str | Parallelism = "fsdp",
    generation: tpu.Generation | None = None,
    calibration: Calibration | None = None,
) -> Prediction:
    """Predict a training step from closed forms alone.

    Args:
        model: What is trained.
        accelerator_type: Of each slice.
        batch_per_chip: Tokens of a step per chip.
        slices: How many.
        strategy: A name or a parallelism; gradients are summed over slices by default.
        generation: Hardware numbers of your own.
        calibration: Efficiencies; those of the compiler's own estimates by default.

    Raises:
        AcceleratorTypeError: If there is no such slice.
        ParallelismError: If the strategy does not fit.
    """
    shape = tpu.AcceleratorType.parse(accelerator_type)
    kind = generation or shape.generation
    known = calibration or Calibration.default(kind)
    parallelism = parse_strategy(strategy, shape.device_count, slices)
    devices = (
        kind.devices_per_chip
    )  # the closed forms are of one, and those of a chip share its links and its HBM
    moved = traffic(model, parallelism, batch_per_chip / devices)
    flops = model.step_flops(batch_per_chip)
    speed = kind.bf16_flops_per_chip * known.matmul_efficiency
    hbm = kind.hbm_bytes_per_second * known.hbm_efficiency
    small = model.streamed_flops_per_token * batch_per_chip
    compute = (flops - small) / speed
    streamed = max(model.streamed_bytes_per_token * batch_per_chip / hbm, small / speed)
    dcn = devices * moved.dcn_bytes * 8 / (kind.dcn_bits_per_second_per_chip * known.dcn_efficiency)
    return Prediction(
        flops=flops,
        peak=kind.bf16_flops_per_chip,
        compute_seconds=compute,
        hbm_seconds=devices * hbm_bytes(model, parallelism, batch_per_chip / devices) / hbm,
        ici_seconds=devices * _ici_seconds(moved.ici, parallelism, shape, kind),
        dcn_seconds=dcn,
        exposed_dcn_seconds=exposed_dcn(dcn, compute + streamed, model.layers),
        streamed_seconds=streamed,
    )


def exposed_dcn(dcn_seconds: float, compute_seconds: float, layers: int) -> float:
    """What of DCN does not hide: the first layer's gradients come last, and what exceeds the pass backward."""
    last = dcn_seconds / layers
    backward = compute_seconds * BACKWARD_SHARE
    return max(last, dcn_seconds - backward * (1 - 1 / layers))


def ici_bytes_per_second(
    shape: tpu.AcceleratorType, ways: int | None = None, generation: tpu.Generation | None = None
) -> float:
    """What a chip receives over ICI, in bytes per second, in a collective over some chips of its slice.

    An axis that wraps around brings data over two links, any other over one (scaling-book, sharding.md). A mesh
    axis of fewer chips than the slice has is taken to lie on its share of the slice's axes.

    Args:
        shape: The slice.
        ways: Devices of the collective; all of the slice when left out.
        generation: Hardware numbers of your own.
    """
    kind = generation or shape.generation
    cubes = all(edge % _CUBE == 0 for edge in shape.shape)
    wraps = [edge == _FLAT_WRAP if kind.ici_dimensions == 2 else cubes for edge in shape.shape]
    links = sum((2 if wrapped else 1) for edge, wrapped in zip(shape.shape, wraps, strict=True) if edge > 1)
    members = ways or shape.device_count
    share = math.log(members) / math.log(shape.device_count) if 1 < members < shape.device_count else 1.0
    return max(1.0, links * share) * kind.ici_bytes_per_second_per_link


def _ici_seconds(
    moved: Mapping[str, float], parallelism: Parallelism, shape: tpu.AcceleratorType, kind: tpu.Generation
) -> float:
    data, fsdp, tensor = parallelism.ici
    ways = {"all-gather": fsdp, "reduce-scatter": fsdp, "all-reduce": data, "activations": tensor}
    return sum(
        amount / ici_bytes_per_second(shape, ways[collective], kind) for collective, amount in moved.items()
    )


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms" if seconds >= 0.01 else f"{seconds * 1e3:.2f} ms"
