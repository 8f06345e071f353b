"""Run experiment notebooks with parameters: one, or one for every combination.

Each run has a folder whose name follows from the notebook and the parameters, holds the executed notebook and
whatever it wrote, and a line in the index of all runs. A run that fails is kept like any other.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
import itertools
import json
import time
from collections.abc import Iterable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multislice_nb import _portal
from multislice_nb.errors import ExperimentError, InvalidRequestError
from multislice_nb.experiments import jsonlines
from multislice_nb.experiments.catalogue import Notebook, notebook
from multislice_nb.experiments.execution import Execution, NotebookProgress
from multislice_nb.experiments.live import shower
from multislice_nb.experiments.records import recorded
from multislice_nb.experiments.rows import commit, version
from multislice_nb.experiments.runs import INDEX, Runs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclasses.dataclass(frozen=True, slots=True)
class NotebookRun:
    """What came of one run.

    Attributes:
        name: Of the experiment.
        parameters: Those given; the others have the notebook's defaults.
        status: `ok`, `failed` or `interrupted`.
        notebook: The executed notebook, as far as it came.
        seconds: How long it took.
        results: What the notebook recorded with `record`.
        error: What failed, and in which cell; empty if nothing did.
    """

    name: str
    parameters: Mapping[str, Any]
    status: str
    notebook: Path
    seconds: float
    results: Mapping[str, Any]
    error: str

    def __str__(self) -> str:
        ended = self.error or "every cell ran"
        return f"{self.name}: {self.status} in {self.seconds:.0f} s · {ended} · {self.notebook}"


def run(
    name: str | Path,
    /,
    parameters: Mapping[str, Any] | None = None,
    *,
    folder: Path | str = "runs",
    progress: Callable[[NotebookProgress], None] | bool = True,
    check: bool = True,
    **more: Any,
) -> NotebookRun:
    """Run an experiment notebook from its first cell to its last: `run("03", embedding=256)`.

    Args:
        name: As in `03`, `03_sharding_ici`, or the path of a notebook of your own.
        parameters: Values for the notebook's parameters. One named `output` that it has and that is not given is
            the run's own folder.
        folder: Where this run's own folder and the index of all runs go.
        progress: Called in this thread with how far it is. True for a line that is updated in place.
        check: Whether a failure raises.
        more: Parameters by name.

    Raises:
        InvalidRequestError: There is no such notebook or parameter. Nothing has run.
        ExperimentError: A cell failed; names it and the notebook as far as it came.
    """
    source = notebook(name)
    given = {**(parameters or {}), **more}
    source.check(given)
    done = _executed(source, Path(folder), given, _shower(progress))
    if check and done.status != "ok":
        raise ExperimentError(
            f"{done.name} failed: {done.error}",
            fix=f"See {done.notebook}. What it had created may still be there: %multislice list.",
        )
    return done


def run_matrix(
    name: str | Path,
    /,
    matrix: Mapping[str, Iterable[Any]],
    *,
    folder: Path | str = "runs",
    progress: Callable[[NotebookProgress], None] | bool = True,
) -> Runs:
    """Run an experiment notebook for every combination of parameters, one after the other.

    A run that fails does not stop the others. Combinations that the index has as done are not run again, so that a
    matrix that was stopped goes on.

    Args:
        name: As for `run`.
        matrix: For each parameter, its values.
        folder: As for `run`.
        progress: As for `run`.

    Returns:
        The index of all runs in `folder`.

    Raises:
        InvalidRequestError: There is no such notebook or parameter, or a parameter has no values. Nothing has run.
    """
    source = notebook(name)
    source.check(matrix)
    alone = [key for key, one in matrix.items() if isinstance(one, str) or not isinstance(one, Iterable)]
    if alone:
        raise InvalidRequestError(
            f"{alone[0]} has one value, {matrix[alone[0]]!r}.", fix="Give a list of those to run it with."
        )
    values = {key: list(choices) for key, choices in matrix.items()}
    empty = [key for key, choices in values.items() if not choices]
    if empty:
        raise InvalidRequestError(f"{empty[0]} has no values.", fix="Give at least one for each parameter.")
    place = Path(folder)
    finished = Runs.load(place).finished() if (place / INDEX).exists() else frozenset()
    every = [
        dict(zip(values, combination, strict=True)) for combination in itertools.product(*values.values())
    ]
    ahead = [parameters for parameters in every if run_name(source, parameters) not in finished]
    show = _shower(progress)
    for number, parameters in enumerate(ahead, 1):
        _executed(source, place, parameters, partial(_counted, show, number, len(ahead)))
    return Runs.load(place)


def run_name(source: Notebook, parameters: Mapping[str, Any]) -> str:
    """The folder of a run: the same for the same notebook and parameters.

    Raises:
        InvalidRequestError: A value cannot be written into a notebook.
    """
    try:
        # NaN and infinity, which the index of runs cannot hold, are refused before anything has run.
        text = json.dumps(parameters, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(
            f"A parameter cannot be written into a notebook: {error}.",
            fix="Give numbers, text, and lists and dictionaries of them.",
        ) from error
    return f"{source.name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}" if parameters else source.name


def _executed(
    source: Notebook, output: Path, parameters: dict[str, Any], show: Callable[[NotebookProgress], None]
) -> NotebookRun:
    """Execute a notebook and add a line to the index, whatever comes of it."""
    name = run_name(source, parameters)
    target = output / name / source.path.name
    jsonlines.check_writable(output / INDEX)
    target.parent.mkdir(parents=True, exist_ok=True)
    own = {"output": str(target.parent.resolve())} if "output" in source.parameters else {}
    begun, clock = dt.datetime.now(dt.UTC), time.monotonic()
    execution = Execution(source, target, own | parameters)
    status, error = "interrupted", "Stopped by hand."
    try:
        with closing(_portal.iterate(execution.progress)) as looks:
            for look in looks:
                show(look)
        status, error = ("failed" if execution.error else "ok"), execution.error
    except Exception as problem:
        status, error = "failed", f"{type(problem).__name__}: {problem}"
        raise
    finally:
        done = NotebookRun(
            name=source.name,
            parameters=parameters,
            status=status,
            notebook=target,
            seconds=time.monotonic() - clock,
            results=recorded(target),
            error=error,
        )
        jsonlines.append(output / INDEX, _line(name, done, begun))
    return done


def _shower(progress: Callable[[NotebookProgress], None] | bool) -> Callable[[NotebookProgress], None]:
    if callable(progress):
        return progress
    return shower() if progress else lambda _: None


def _counted(show: Callable[[NotebookProgress], None], run: int, runs: int, look: NotebookProgress) -> None:
    show(dataclasses.replace(look, run=run, runs=runs))


def _line(run: str, done: NotebookRun, begun: dt.datetime) -> dict[str, Any]:
    fields = dataclasses.asdict(done) | {"notebook": str(done.notebook)}
    return {
        "run": run,
        **fields,
        "date": begun.isoformat(timespec="seconds"),
        "multislice_nb": version(),
        "commit": commit(),
    }
