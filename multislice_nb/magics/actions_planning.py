"""The subcommands about deciding: sweep, plot, plan, recommend."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from multislice_nb.errors import MagicError
from multislice_nb.magics.base import Base

if TYPE_CHECKING:
    from collections.abc import Sequence

    from multislice_nb.experiments import Results, SweepProgress
    from multislice_nb.plotting import Chart
    from multislice_nb.sharding import Plan, Recommendations

__all__ = ["PlanningActions"]


class PlanningActions(Base):
    """Each method is a subcommand."""

    def sweep(
        self,
        *,
        strategies: Sequence[str],
        batch_sizes: Sequence[int],
        cluster: str | None = None,
        **options: Any,
    ) -> Results:
        """`sweep`."""
        from multislice_nb.experiments import sweep

        line = self._line()

        def progress(look: SweepProgress) -> None:
            line.show(str(look), step=str(look) if look.last else None)

        gang = self.session.cluster(cluster)
        self.session.results = sweep(strategies, batch_sizes, cluster=gang, progress=progress, **options)
        line.end(f"{len(self.session.results)} measurements in {self.session.results.path}")
        return self.session.results

    def plot(
        self,
        figure: str,
        results: str | None = None,
        *,
        generation: tuple[str, ...] | None = None,
        slices: tuple[int, ...] | None = None,
        exact: bool = False,
        theme: str = "light",
    ) -> Chart:
        """`plot`."""
        from multislice_nb import plotting

        if figure == "tflops":
            return self._results(results).plot_tflops(theme=theme)  # type: ignore[return-value]
        options: dict[str, Any] = {"theme": theme, "exact": exact}
        if slices:
            options["slices"] = slices
        if results is not None:
            return self._results(results).plot_intensity(generation=generation, **options)  # type: ignore[return-value]
        return plotting.plot_intensity(generation or "v4", **options)

    def _results(self, name: str | None) -> Results:
        from multislice_nb.experiments import Results

        if name is None:
            if self.session.results is None:
                raise MagicError(
                    "There was no sweep in this notebook.",
                    fix="Name a variable with results, or a results file.",
                )
            return self.session.results
        found = self._variables.get(name)
        if isinstance(found, Results):
            return found
        if found is not None and not Path(name).exists():
            raise MagicError(
                f"{name} is a {type(found).__name__}, not results of a sweep.",
                fix="Give what ms.sweep returned.",
            )
        return Results.load(name)

    def plan(self, *, accelerator_type: str, batch: int, strategy: str = "fsdp", **options: Any) -> Plan:
        """`plan`."""
        from multislice_nb.experiments.planning import plan

        line = self._line()
        line.show(
            f"Compiling {strategy} for {accelerator_type}",
            step=f"Compiling {strategy} for {accelerator_type}",
        )
        planned = plan(accelerator_type=accelerator_type, batch=batch, strategy=strategy, **options)
        line.end()
        return planned

    def recommend(
        self,
        *,
        accelerator_type: str,
        slices: int = 2,
        parameters: float,
        tokens_per_slice: float,
    ) -> Recommendations:
        """`recommend`."""
        from multislice_nb import sharding

        return sharding.recommend(
            accelerator_type, slices, parameters=parameters, tokens_per_slice=tokens_per_slice
        )
