"""The subcommands about deciding before anything runs: plan, largest batch, intensity, advice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from multislice_nb.errors import MagicError
from multislice_nb.magics.base import Base
from multislice_nb.magics.views import Intensity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from multislice_nb.experiments import Workload
    from multislice_nb.sharding import LargestBatch, Plan, Plans, Recommendations

__all__ = ["PlanningActions"]

_ALL = ("all",)


class PlanningActions(Base):
    """Each method is a subcommand."""

    def plan(
        self,
        *,
        accelerator_type: str,
        batches: Sequence[int],
        strategies: Sequence[str] = ("fsdp",),
        largest: bool = False,
        workload: str | None = None,
        **options: Any,
    ) -> Plan | Plans:
        """`plan`."""
        from multislice_nb.experiments import planning
        from multislice_nb.sharding import Plans, parse_strategy
        from multislice_nb.tpu import AcceleratorType

        named = () if tuple(strategies) == _ALL else strategies
        alone = len(named) == len(batches) == 1
        if largest and not alone:
            raise MagicError(
                "--largest is for one strategy and one batch.",
                fix="Name one of each; %multislice largest-batch needs no batch at all.",
            )
        devices, slices = AcceleratorType.parse(accelerator_type).device_count, options.get("slices", 1)
        for strategy in named:  # before anything is said to be compiled
            parse_strategy(strategy, devices, slices)
        options |= {"accelerator_type": accelerator_type, "workload": self._workload(workload)}
        doing = f"Compiling {', '.join(strategies)} for {accelerator_type}"
        line = self._line()
        line.show(doing, step=doing)
        if alone:
            plan = planning.plan(strategy=named[0], batch=batches[0], largest=largest, **options)
            self._plans = Plans([plan])
            line.end()
            return plan
        self._plans = planning.compare_plans(strategies=named or None, batches=batches, **options)
        line.end()
        return self._plans

    def largest_batch(
        self, *, accelerator_type: str, workload: str | None = None, **options: Any
    ) -> LargestBatch:
        """`largest-batch`."""
        from multislice_nb.experiments import planning

        doing = f"Looking for the largest batch on {accelerator_type}"
        line = self._line()
        line.show(doing, step=doing)
        found = planning.largest_batch(self._workload(workload), accelerator_type=accelerator_type, **options)
        self._plans = found.plans
        line.end()
        return found

    def recommend(
        self, *, accelerator_type: str, slices: int = 2, parameters: float, tokens_per_slice: float
    ) -> Recommendations:
        """`recommend`."""
        from multislice_nb import sharding

        return sharding.recommend(
            accelerator_type, slices, parameters=parameters, tokens_per_slice=tokens_per_slice
        )

    def intensity(
        self,
        generation: str,
        *,
        slices: Sequence[int] = (2,),
        tokens_per_slice: float | None = None,
        exact: bool = False,
    ) -> Intensity:
        """`intensity`."""
        from multislice_nb import sharding

        return Intensity(
            generation,
            sharding.arithmetic_intensity(generation),
            tuple(
                (
                    count,
                    sharding.smallest_batch(generation, count, exact=exact),
                    sharding.advised_batch(generation, count, exact=exact),
                    sharding.operational_intensity(tokens_per_slice, count, exact=exact)
                    if tokens_per_slice is not None
                    else None,
                )
                for count in slices
            ),
            tokens_per_slice,
        )

    def _workload(self, name: str | None) -> Workload | None:
        if name is None:
            return None
        found = self._variables.get(name)
        if found is None or not hasattr(found, "settings"):
            raise MagicError(
                f"{name} is no workload.",
                fix="Give a variable such as model = ms.experiments.Transformer(layers=2).",
            )
        workload: Workload = found
        return workload
