"""`%%multislice`: a cell on every worker, its output while it runs, its end."""

from __future__ import annotations

import contextlib
import keyword
import re
import sys
import time
import warnings
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

from multislice_nb._live import Line
from multislice_nb.errors import MagicError, WorkerError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from multislice_nb.cluster import CellResult, Cluster, WorkerResult
    from multislice_nb.cluster.progress import CellProgress
    from multislice_nb.magics.arguments import Subcommand

__all__ = [
    "CellInterrupted",
    "of_a_line",
    "plain_warnings",
    "run_cell",
    "show_failure",
    "show_result",
    "told_where_it_is",
    "variable_name",
]

_QUIET = 0.5
"""Seconds that a cell may run before it is said that it runs."""

_SHOWN = (
    "image/png", "image/jpeg", "image/svg+xml", "text/html", "text/markdown", "text/latex", "text/plain",
    "application/json", "application/vnd.vegalite.v5+json", "application/vnd.plotly.v1+json",
)  # fmt: skip
"""What of a worker's display is shown here: nothing that refers to objects of the worker's own kernel."""


class CellInterrupted(KeyboardInterrupt):
    """A cell or a line was interrupted; says what became of it."""

    def _render_traceback_(self) -> list[str]:
        return [f"Interrupted: {self}"]


def of_a_line(stop: KeyboardInterrupt, command: Subcommand) -> KeyboardInterrupt:
    """The interrupt of a line with what is left of it; as it is, where it says so itself."""
    if hasattr(stop, "_render_traceback_"):
        return stop
    told = [*getattr(stop, "__notes__", ()), command.left.replace("%multislice", command.prefix)]
    return CellInterrupted(
        " ".join(filter(None, told)) or f"{command.magic} was stopped; nothing of it goes on."
    )


def run_cell(
    cluster: Cluster,
    code: str,
    *,
    watched: bool,
    group_outputs: str = "type",
    show: bool = True,
    **options: Any,
) -> CellResult:
    """Run a cell on the workers and show what it left; its failure is in the result, not raised.

    Options are those of `Cluster.run`: ranks, slices, workers, timeout, profile, name.

    Raises:
        CellInterrupted: It was interrupted, and by then on every worker.
        ClusterError: The cluster is detached or has lost workers; nothing was run.
    """
    line, began = Line(watched=watched and show, interval=0.0), time.monotonic()
    restarts = cluster.restarts
    last: list[CellProgress] = []

    def progress(look: CellProgress) -> None:
        last[:] = [look]
        if look.rows or look.notices or time.monotonic() - began > _QUIET:
            line.show(str(look), step=" ".join(look.notices) or None)

    try:
        with plain_warnings():
            result = cluster.run(code, check=False, on_update=progress, **options)
    except KeyboardInterrupt:
        if last:
            line.end(str(replace(last[0], running=())))
        raise CellInterrupted(_interrupted(cluster, anew=cluster.restarts > restarts)) from None
    if show:
        show_result(result, line, group_outputs)
    return result


def _interrupted(cluster: Cluster, *, anew: bool) -> str:
    if cluster.cut_off:
        return f"{cluster.cut_off}, so the cell goes on there; %multislice collect gets its end once it is reached."
    if anew:
        return (
            f"workers of {cluster.name} did not take the interrupt and were killed; the gang was started anew, and "
            "its variables are lost."
        )
    return f"the cell was stopped on the workers of {cluster.name}; their variables are kept."


def show_result(result: CellResult, line: Line, group_outputs: str = "type") -> None:
    """Show what an operation left, in the place of its progress; its failures are the exception's to tell."""
    rich = _rich_value(result)
    line.end(_text(result if rich is None else _without_value(result, rich), group_outputs))
    _displays(result)
    if rich is not None:
        _show_value(result, rich)
    if result.profile is not None:
        from IPython.display import display

        display(result.profile)


def show_failure(result: CellResult) -> None:
    """Show how a cell failed, if it did, in the words of its exception."""
    try:
        result.raise_for_error()
    except WorkerError as error:
        print(*error._render_traceback_(), sep="\n")


@contextlib.contextmanager
def plain_warnings() -> Iterator[None]:
    """Our own warnings as a sentence: the line of our code that they point to is of no use to anybody."""
    show = warnings.showwarning

    def plain(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if category.__module__.startswith("multislice_nb."):
            print(f"Note: {message}", file=sys.stderr)
        else:
            show(message, category, *place, **more)

    with warnings.catch_warnings():
        warnings.showwarning = plain
        yield


def _text(result: CellResult, group_outputs: str) -> str:
    """What the workers printed and their values; failures are the exception's to tell."""
    if group_outputs != "engine":
        return str(_without_errors(result))
    blocks = []
    for worker in result.workers:
        parts = [worker.stdout.rstrip("\n"), worker.stderr.rstrip("\n"), worker.value_text or ""]
        blocks.append("\n".join([f"── {worker.worker}", *(part for part in parts if part)]))
    return "\n".join(blocks)


def _without_errors(result: CellResult) -> CellResult:
    return replace(result, workers=tuple(replace(worker, error=None) for worker in result.workers))


def _displays(result: CellResult) -> None:
    """Rich output of the first worker that has any; the others' stays in the result."""
    shown = next((worker for worker in result.workers if worker.displays), None)
    if shown is None:
        return
    from IPython.display import display

    for bundle in shown.displays:
        kept = _kept(bundle)
        if kept:
            display(kept, raw=True)
    others = [w for w in result.workers if w.displays and w is not shown and w.displays != shown.displays]
    if others or shown.worker.rank:
        more = (
            f"; other displays of {len(others)} more workers are in result.displays, with -o result"
            if others
            else ""
        )
        print(f"Shown: {shown.worker}{more}.")


def _rich_value(result: CellResult) -> WorkerResult | None:
    """The first worker whose value is more than text, as a table or a picture is, where that can be seen."""
    from IPython.core.getipython import get_ipython

    if getattr(get_ipython(), "kernel", None) is None:
        return None
    return next((w for w in result.workers if set(_kept(w.value_data)) - {"text/plain"}), None)


def _without_value(result: CellResult, shown: WorkerResult) -> CellResult:
    """The result without the values that look as the one that is shown."""
    return replace(
        result,
        workers=tuple(
            replace(worker, value_text=None) if worker.value_data == shown.value_data else worker
            for worker in result.workers
        ),
    )


def _show_value(result: CellResult, shown: WorkerResult) -> None:
    from IPython.display import display

    display(_kept(shown.value_data), raw=True)
    if any(worker.value_data != shown.value_data for worker in result.workers):
        print(f"Shown: the value of {shown.worker}; all are in result.values, with -o result.")


def _kept(bundle: Mapping[str, Any]) -> dict[str, Any]:
    return {mime: bundle[mime] for mime in _SHOWN if mime in bundle}


def variable_name(text: str) -> str:
    """A name that a variable can have.

    Raises:
        MagicError: It is none.
    """
    if not text.isidentifier() or keyword.iskeyword(text):
        raise MagicError(f"-o cannot be {text!r}.", fix="Give the name of a variable, as -o result.")
    return text


@contextlib.contextmanager
def told_where_it_is(variables: Mapping[str, Any]) -> Iterator[None]:
    """Where a cell knows no name that this notebook knows, say how the workers come to it."""
    try:
        yield
    except WorkerError as error:
        first = error.result.first_error if error.result is not None else None
        found = re.match(r"name '(\w+)' is not defined", first.evalue) if first is not None else None
        if found is not None and found[1] in variables:
            error.fix = f"{_known_here(found[1], variables[found[1]])}\n{error.fix}"
        raise


def _known_here(name: str, value: object) -> str:
    if isinstance(value, ModuleType):
        return f"{name} is imported in this notebook alone: import it on the workers too."
    if callable(value) and getattr(value, "__module__", None) == "__main__":
        return f"{name} is this notebook's own: run the cell that makes it with %%multislice, too."
    return f"{name} is defined in this notebook alone: %multislice define {name} sends it to the workers."
