"""The subcommands about measuring: sweep, plot, compare, experiment notebooks."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multislice_nb.errors import MagicError
from multislice_nb.magics.base import Base, literal, literals
from multislice_nb.magics.views import Table
from multislice_nb.magics.views import experiments as listed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from multislice_nb.experiments import (
        Comparison,
        NotebookProgress,
        NotebookRun,
        Results,
        Runs,
    )
    from multislice_nb.plotting import Chart
    from multislice_nb.sharding import Plan, Plans
    from multislice_nb.tpu import Generation

__all__ = ["ExperimentActions"]

_OF_RESULTS = {"predicted": "predicted", "weak-scaling": "weak_scaling"}
_OF_PLANS = ("breakdown", "memory", "traffic")


class ExperimentActions(Base):
    """Each method is a subcommand."""

    def sweep(
        self,
        *,
        file: str | None = None,
        path: str | None = None,
        cluster: str | None = None,
        local: int | None = None,
        **options: Any,
    ) -> Results:
        """`sweep`."""
        from multislice_nb.experiments import LocalCluster, SweepRequest, read_request, run_request
        from multislice_nb.experiments.live import sweep_shower

        if file is not None and options:
            raise MagicError(
                f"--{min(options).replace('_', '-')} and --file exclude each other.",
                fix=f"Write it into {file}, or leave --file out.",
            )
        request = read_request(file) if file is not None else SweepRequest(**options)
        line = self._line()
        with ExitStack() as stack:
            gang = (
                self.session.cluster(cluster)
                if local is None
                else stack.enter_context(LocalCluster(local or None))
            )
            self.session.results = run_request(request, cluster=gang, path=path, progress=sweep_shower(line))
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
            return self._results(results).plot_tflops(theme=theme)
        if figure in _OF_RESULTS:
            draw = getattr(plotting, _OF_RESULTS[figure])
            return draw(self._results(results).frame, theme=theme)  # type: ignore[no-any-return]
        if figure in _OF_PLANS:
            return getattr(plotting, figure)(self._planned(results), theme=theme)  # type: ignore[no-any-return]
        if figure == "roofline":
            kind, plans = self._roofs(results, generation or ())
            return plotting.roofline(kind, plans, theme=theme)  # type: ignore[arg-type]
        options: dict[str, Any] = {"theme": theme, "exact": exact}
        if slices:
            options["slices"] = slices
        if results is not None:
            return self._results(results).plot_intensity(generation=generation, **options)
        return plotting.plot_intensity(generation or "v4", **options)

    def compare(self, before: str, after: str, *, level: float = 0.05) -> Comparison:
        """`compare`."""
        from multislice_nb import experiments

        return experiments.compare(self._results(before), self._results(after), level=level)

    def experiment(
        self,
        name: str | None = None,
        *,
        parameters: Mapping[str, str] | None = None,
        matrix: Mapping[str, str] | None = None,
        folder: str = "runs",
    ) -> Table | NotebookRun | Runs:
        """`experiment`."""
        from multislice_nb import experiments

        if name is None:
            return listed(experiments.notebooks())
        given = {key: literal(text) for key, text in (parameters or {}).items()}
        line = self._line()

        def progress(look: NotebookProgress) -> None:
            line.show(str(look), step=look.milestone)

        if not matrix:
            done = experiments.run(name, given, folder=folder, progress=progress)
            line.end()
            return done
        twice = sorted(set(given) & set(matrix))
        if twice:
            raise MagicError(
                f"{twice[0]} is given by -p and by -m.", fix="Give it once, by -m for several values."
            )
        grid = {key: [value] for key, value in given.items()} | {
            key: literals(text) for key, text in matrix.items()
        }
        runs = experiments.run_matrix(name, grid, folder=folder, progress=progress)
        line.end()
        return runs

    def runs(self, folder: str = "runs") -> Runs:
        """`runs`."""
        from multislice_nb.experiments import Runs

        return Runs.load(folder)

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
                f"The variable {name} holds no results of a sweep, but an object of type {type(found).__name__}.",
                fix="Give what ms.sweep returned.",
            )
        return Results.load(name)

    def _roofs(self, name: str | None, generations: Sequence[str]) -> tuple[Generation, list[Plan]]:
        """Whose roofs, and the plans to mark below them: those of that generation."""
        from multislice_nb.tpu import AcceleratorType, generation

        plans = self._planned(name) if name or not generations else self._plans or ()
        by_kind: dict[Generation, list[Plan]] = {generation(kind): [] for kind in generations}
        for plan in plans:
            kind = AcceleratorType.parse(plan.accelerator_type).generation
            if not generations or kind in by_kind:
                by_kind.setdefault(kind, []).append(plan)
        if len(by_kind) != 1:
            raise MagicError(
                f"A roofline is of one generation, not of {' and '.join(kind.name for kind in by_kind) or 'none'}.",
                fix="Name one, as --generation v4.",
            )
        ((kind, own),) = by_kind.items()
        if name is not None and not own:
            raise MagicError(f"{name} has no plan for {kind.name}.", fix="Leave --generation out.")
        return kind, own

    def _planned(self, name: str | None) -> Plans | Sequence[Any]:
        """Plans by the name of a variable, or the last ones."""
        from multislice_nb.sharding import LargestBatch, Plan, Plans

        found = self._plans if name is None else self._variables.get(name)
        if isinstance(found, Plans):
            return found
        if isinstance(found, LargestBatch):
            return found.plans
        if isinstance(found, Plan):
            return Plans([found])
        raise MagicError(
            "There was no plan in this notebook." if name is None else f"{name} is no plan.",
            fix="Make one with %multislice plan, or name a variable that holds one.",
        )
