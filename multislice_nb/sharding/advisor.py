"""Which strategy between slices: the overview's order, each step with its reason and its numbers.

The overview's order (Multislice overview, "Sharding with Multislice for maximum performance"): begin with data
parallelism; take FSDP when memory is short; take pipelines only when the batch is too small for either, of depth
2 with N/2 replicas first, then 4 with N/4, until the batch of a pipeline is large enough.
"""

from __future__ import annotations

import html
import math
from dataclasses import dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Literal

from multislice_nb import tpu
from multislice_nb._texts import grouped
from multislice_nb.errors import InvalidRequestError
from multislice_nb.sharding.closed_forms import memory_bytes
from multislice_nb.sharding.cost import Prediction, predict
from multislice_nb.sharding.intensity import MARGIN, arithmetic_intensity, operational_intensity
from multislice_nb.sharding.model import Model
from multislice_nb.sharding.parallelism import Parallelism
from multislice_nb.sharding.pipeline import Pipeline, pipelines

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Recommendation", "Recommendations", "recommend"]

_GIB = 2**30
Verdict = Literal["use", "little margin", "slowed by DCN", "out of memory"]
_VERDICTS: tuple[Verdict, ...] = ("use", "little margin", "slowed by DCN", "out of memory")


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """One way to divide training over slices.

    Attributes:
        strategy: Its name.
        verdict: `use`, `little margin` (DCN just hides), `slowed by DCN` or `out of memory`.
        reason: Why, in one sentence.
        parallelism: Degrees for each pipeline stage or, without pipelines, for all slices.
        pipeline: The pipelines, if it has any.
        intensity: FLOPs of the pass backward for each bit over DCN.
        threshold: What the hardware needs, in the same unit.
        memory_bytes: HBM needed on a JAX device (a chip, but on TPU7x).
        usable_bytes: HBM that the compiler lets a program use on a device.
        prediction: A step of it, from the cost model, without a pipeline's bubble.
        remat: Whether it fits only if layers are computed again in the pass backward.
    """

    strategy: str
    verdict: Verdict
    reason: str
    parallelism: Parallelism
    pipeline: Pipeline | None
    intensity: float
    threshold: float
    memory_bytes: float
    usable_bytes: float
    prediction: Prediction
    remat: bool

    @property
    def tflops_per_chip(self) -> float:
        """Predicted TFLOP/s a chip, the pipeline's bubble taken off."""
        return self.prediction.tflops_per_chip * (1 - (self.pipeline.bubble if self.pipeline else 0))

    def __str__(self) -> str:
        return f"{self.strategy} [{self.verdict}] {self.reason}"


class Recommendations(tuple[Recommendation, ...]):
    """Recommendations, the best first, with text, HTML and table forms."""

    __slots__ = ()

    @property
    def best(self) -> Recommendation:
        """The first."""
        return self[0]

    @property
    def table(self) -> pd.DataFrame:
        """One row each, in order."""
        import pandas as pd

        return pd.DataFrame(
            {
                "strategy": one.strategy,
                "verdict": one.verdict,
                "reason": one.reason,
                "flops_per_dcn_bit": one.intensity,
                "threshold": one.threshold,
                "hbm_gib": one.memory_bytes / _GIB,
                "usable_gib": one.usable_bytes / _GIB,
                "tflops_per_chip": one.tflops_per_chip,
            }
            for one in self
        )

    def __str__(self) -> str:
        return "\n".join(f"{rank}. {one}" for rank, one in enumerate(self, 1))

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{rank}</td><td>{html.escape(one.strategy)}</td><td>{html.escape(one.verdict)}</td>"
            f"<td>{one.tflops_per_chip:.0f}</td><td>{one.memory_bytes / _GIB:.1f} of {one.usable_bytes / _GIB:.2f}"
            f"</td><td style='text-align:left'>{html.escape(one.reason)}</td></tr>"
            for rank, one in enumerate(self, 1)
        )
        head = "".join(
            f"<th>{name}</th>"
            for name in ("", "strategy", "verdict", "TFLOP/s a chip", "HBM, GiB a chip", "reason")
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def recommend(
    accelerator_type: str | tpu.AcceleratorType,
    slices: int,
    *,
    model: Model | None = None,
    parameters: float | None = None,
    tokens_per_slice: float,
    usable_bytes: float | None = None,
) -> Recommendations:
    """Rank the ways to train a model on several slices.

    Args:
        accelerator_type: Of each slice.
        slices: How many.
        model: What is trained; or
        parameters: of a Transformer, with Adam.
        tokens_per_slice: Batch of a slice, in tokens per step.
        usable_bytes: HBM that a program may use on a chip; the compiler's limit when left out.

    Returns:
        What can be used, in the overview's order, then what cannot, with the reason.

    Raises:
        AcceleratorTypeError: If there is no such slice.
        InvalidRequestError: If not exactly one of model and parameters is given, or a number is not positive.
    """
    shape = tpu.AcceleratorType.parse(accelerator_type)
    if (model is None) == (parameters is None):
        raise InvalidRequestError(
            "The advice needs one model.", fix="Give either model or parameters, not both."
        )
    if not all(isinstance(one, Real) and one > 0 for one in (slices, tokens_per_slice)):
        raise InvalidRequestError(
            f"{slices!r} slices with {tokens_per_slice!r} tokens each are no training.",
            fix="Give positive numbers.",
        )
    trained = model or Model.transformer(parameters or 0)
    question = _Question(shape, slices, trained, tokens_per_slice, usable_bytes)
    ladder: list[Recommendation] = [question.answer(dcn_fsdp=False)]
    if slices > 1:
        ladder.append(question.answer(dcn_fsdp=True))
        ladder += [
            question.answer(pipeline=pipeline)
            for pipeline in pipelines(slices)
            if pipeline.depth <= trained.layers
        ]
    return Recommendations(sorted(ladder, key=lambda one: _VERDICTS.index(one.verdict)))


@dataclass(frozen=True)
class _Question:
    shape: tpu.AcceleratorType
    slices: int
    model: Model
    tokens_per_slice: float
    usable: float | None

    def answer(self, *, dcn_fsdp: bool = False, pipeline: Pipeline | None = None) -> Recommendation:
        kind = self.shape.generation
        depth = pipeline.depth if pipeline else 1
        replicas = self.slices // depth
        stage = self._stage(depth)
        tokens_per_device = self.tokens_per_slice * depth / self.shape.device_count
        parallelism, prediction = self._inside(stage, replicas, tokens_per_device, dcn_fsdp=dcn_fsdp)
        usable = self.usable or kind.hbm_usable_bytes_per_chip / kind.devices_per_chip
        # Every stage keeps what all microbatches need for the pass backward, so the whole batch counts.
        memory = memory_bytes(stage, parallelism, tokens_per_device)
        remat = memory > usable
        if remat:
            memory = memory_bytes(stage, parallelism, tokens_per_device, remat=True)
        intensity = operational_intensity(
            self.tokens_per_slice * depth, replicas, gradient_bits=8 * self.model.gradient_bytes
        )
        threshold = arithmetic_intensity(kind)
        verdict = _verdict(intensity / threshold, short_of_memory=memory > usable)
        return Recommendation(
            strategy=_name(parallelism, pipeline),
            verdict=verdict,
            reason=_reason(verdict, self, pipeline, intensity, memory, usable, dcn_fsdp=dcn_fsdp)
            + (
                " Layers are computed again in the pass backward to fit."
                if remat and memory <= usable
                else ""
            ),
            remat=remat,
            parallelism=parallelism,
            pipeline=pipeline,
            intensity=intensity,
            threshold=threshold,
            memory_bytes=memory,
            usable_bytes=usable,
            prediction=prediction,
        )

    def _stage(self, depth: int) -> Model:
        """The part of the model that a slice of a pipeline has: the largest, for which the others wait."""
        layers = math.ceil(self.model.layers / depth)
        return replace(
            self.model, parameters=self.model.parameters * layers / self.model.layers, layers=layers
        )

    def _inside(
        self, stage: Model, replicas: int, tokens_per_device: float, *, dcn_fsdp: bool
    ) -> tuple[Parallelism, Prediction]:
        """The mix of FSDP and tensor parallelism inside a slice that is predicted to be fastest."""
        devices = self.shape.device_count
        batch = tokens_per_device * self.shape.generation.devices_per_chip
        between = {"dcn_fsdp": replicas} if dcn_fsdp else {"dcn_data": replicas}
        mixes = [
            Parallelism(ici_fsdp=devices // ways, ici_tensor=ways, **between)
            for ways in range(1, devices + 1)
            if devices % ways == 0
        ]
        predicted = [
            (mix, predict(stage, self.shape, batch_per_chip=batch, slices=replicas, strategy=mix))
            for mix in mixes
        ]
        return min(predicted, key=lambda pair: pair[1].step_seconds)


def _name(parallelism: Parallelism, pipeline: Pipeline | None) -> str:
    if pipeline is None:
        return parallelism.name
    data, fsdp, tensor = parallelism.ici
    return f"{Parallelism(ici_data=data, ici_fsdp=fsdp, ici_tensor=tensor).name} + {pipeline.name}"


def _verdict(ratio: float, *, short_of_memory: bool) -> Verdict:
    if short_of_memory:
        return "out of memory"
    if ratio < 1:
        return "slowed by DCN"
    # The overview rounds its advice to 350 000 tokens, so equality must not turn on the last bit.
    return "use" if ratio >= MARGIN * (1 - 1e-9) else "little margin"


def _reason(
    verdict: Verdict,
    question: _Question,
    pipeline: Pipeline | None,
    intensity: float,
    memory: float,
    usable: float,
    *,
    dcn_fsdp: bool,
) -> str:
    if verdict == "out of memory":
        return f"It needs {memory / _GIB:.1f} GiB a chip even with rematerialisation, and {usable / _GIB:.2f} are usable."
    kind = question.shape.generation
    if intensity == float("inf"):
        what = (
            "One slice has no traffic over DCN"
            if pipeline is None
            else "One pipeline has no gradients to sum"
        )
        return f"{what}{_bubble(pipeline)}."
    threshold = arithmetic_intensity(kind)
    depth = pipeline.depth if pipeline else 1
    tokens = question.tokens_per_slice * depth
    share = f" a pipeline of {depth} slices" if pipeline else " a slice"
    told = (
        f"{grouped(tokens)} tokens{share} give {grouped(intensity)} FLOPs for each bit over DCN, "
        f"{intensity / threshold:.1f} times the {grouped(threshold)} of {kind.name}"
    )
    saved = f", and it leaves {(usable - memory) / _GIB:.1f} GiB a chip free" if dcn_fsdp else ""
    return f"{told}{saved}{_bubble(pipeline)}."


def _bubble(pipeline: Pipeline | None) -> str:
    return f"; {pipeline.bubble:.0%} of the time is the pipeline's bubble" if pipeline else ""
