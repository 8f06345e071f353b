"""What is asked of a sweep."""

from __future__ import annotations

import dataclasses
from numbers import Real
from typing import TYPE_CHECKING

from multislice_nb.errors import InvalidRequestError
from multislice_nb.experiments.grid import grid, mlps, subsets
from multislice_nb.experiments.training import Options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from multislice_nb.experiments.configuration import Configuration
    from multislice_nb.experiments.rows import Place
    from multislice_nb.experiments.workload import Workload
    from multislice_nb.sharding import Parallelism


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SweepRequest:
    """Which combinations are measured, and how carefully.

    Attributes:
        strategies: Names, as in `fsdp` or `4-way FSDP`, or `Parallelism`s.
        batch_sizes: Rows of the batch per JAX device.
        embedding: Of the MLP; several for a grid. Ignored when `workloads` are given.
        layers: Of the MLP; several for a grid. Ignored when `workloads` are given.
        workloads: Models to measure instead of the MLP.
        options: Ways of training; several for a grid.
        slices: How many slices take part, the first so many of the cluster while the others are idle; several for
            weak scaling. None for all.
        steps: Steps timed in a round.
        warmup: Steps run before each round.
        target_spread: Rounds are repeated until half the interquartile range is at most this share of the median;
            None for a single round.
        max_steps: No further round once this many steps were timed.
        adaptive: Do not try a larger batch of what ran out of memory.
        compile_ahead: Compile the next configuration while one is timed. None for doing so on TPUs, and not where
            compiler and steps would share the same processors.
        timeout: Seconds that one round may take, compilation included, before it is given up.
        memory_limit: Bytes that all devices together may need; None for a share of what is free where workers
            share one machine, and for no limit on TPUs.
    """

    strategies: Sequence[str | Parallelism]
    batch_sizes: Sequence[int]
    embedding: int | Sequence[int] = 2048
    layers: int | Sequence[int] = 4
    workloads: Sequence[Workload] | None = None
    options: Options | Sequence[Options] = dataclasses.field(default_factory=Options)
    slices: int | Sequence[int] | None = None
    steps: int = 10
    warmup: int = 1
    target_spread: float | None = None
    max_steps: int = 100
    adaptive: bool = True
    compile_ahead: bool | None = None
    timeout: float = 900.0
    memory_limit: int | None = None

    def __post_init__(self) -> None:
        faults = [
            (f"{name} cannot be {value!r}.", "It must be a number above 0.")
            for name, value in (
                ("target_spread", self.target_spread),
                ("max_steps", self.max_steps),
                ("timeout", self.timeout),
                ("memory_limit", self.memory_limit),
            )
            if value is not None and not (isinstance(value, Real) and value > 0)
        ]
        if faults:
            raise InvalidRequestError.of_faults("The sweep", faults)

    def configurations(self, place: Place) -> list[Configuration]:
        """All combinations for the slices at hand, in the order in which they are measured.

        Raises:
            ParallelismError: A strategy does not fit the slices or the workload.
            InvalidRequestError: A name, size or number cannot be, or there is nothing to measure.
        """
        models = mlps(self.embedding, self.layers) if self.workloads is None else self.workloads
        options = [self.options] if isinstance(self.options, Options) else self.options
        return grid(
            self.strategies,
            self.batch_sizes,
            models,
            options,
            subsets(self.slices, place),
            steps=self.steps,
            warmup=self.warmup,
        )
