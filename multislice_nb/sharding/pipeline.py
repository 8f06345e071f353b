"""Pipelines between slices: planned, with what they cost, for batches too small for anything else."""

from __future__ import annotations

from dataclasses import dataclass

from multislice_nb.errors import ParallelismError

__all__ = ["Pipeline", "pipelines"]

# Four microbatches for each stage keep the bubble below a fifth (Huang et al. 2019, GPipe: negligible when there
# are at least four times as many microbatches as stages).
_MICROBATCHES_PER_STAGE = 4


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """Slices in pipelines: `depth` slices share a batch one after the other, `replicas` pipelines divide it.

    Args:
        depth: Slices of a pipeline, each with its part of the layers.
        replicas: Pipelines, joined by data parallelism over DCN.
        microbatches: Parts of a pipeline's batch that follow one another; four for each stage when left out.

    Raises:
        ParallelismError: If a number is below 1.
    """

    depth: int
    replicas: int = 1
    microbatches: int = 0

    def __post_init__(self) -> None:
        if not self.microbatches:
            object.__setattr__(self, "microbatches", _MICROBATCHES_PER_STAGE * self.depth)
        for name in ("depth", "replicas", "microbatches"):
            if getattr(self, name) < 1:
                raise ParallelismError(
                    f"{name} cannot be {getattr(self, name)}.", fix="Give a whole number from 1."
                )

    @property
    def slices(self) -> int:
        """Slices of all pipelines."""
        return self.depth * self.replicas

    @property
    def bubble(self) -> float:
        """Share of the time in which a slice waits: (depth-1)/(microbatches+depth-1).

        Source: Huang et al. 2019, "GPipe", section 2.3.
        """
        return (self.depth - 1) / (self.microbatches + self.depth - 1)

    @property
    def name(self) -> str:
        """What people call it, such as `pipelines of depth 2 + 4-way data over DCN`."""
        if self.depth == 1:
            return f"{self.replicas}-way data over DCN"
        replicas = f" + {self.replicas}-way data over DCN" if self.replicas > 1 else ""
        return f"pipelines of depth {self.depth}{replicas}"

    def tokens_per_pipeline(self, tokens: float) -> float:
        """The batch that one pipeline works on, of a batch of all slices."""
        return tokens / self.replicas

    def tokens_per_microbatch(self, tokens: float) -> float:
        """What a slice computes at once: small ones lower the utilisation of the chips."""
        return self.tokens_per_pipeline(tokens) / self.microbatches

    def __str__(self) -> str:
        return self.name


def pipelines(slices: int, *, microbatches: int = 0) -> tuple[Pipeline, ...]:
    """The overview's ladder: depth 2 with N/2 replicas, then 4 with N/4, as deep as N slices allow.

    Args:
        slices: N.
        microbatches: Of each; four for each stage when left out.
    """
    depths = [2**power for power in range(1, slices.bit_length()) if slices % 2**power == 0]
    return tuple(
        Pipeline(depth=depth, replicas=slices // depth, microbatches=microbatches) for depth in depths
    )
