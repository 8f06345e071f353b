"""What a cell left on every worker: frozen, by rank, with text and HTML forms."""

from __future__ import annotations

import html
import pickle
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from multislice_nb._texts import grouped
from multislice_nb.cluster.fold import fold, interleave

if TYPE_CHECKING:
    from collections.abc import Mapping

    from multislice_nb.cluster.inventory import Worker
    from multislice_nb.profiles import Profile

__all__ = ["CellResult", "RemoteError", "RemoteValue", "WorkerResult", "unpack"]

LINES = 500
"""Printed lines of each worker that a result shows, at the most; it holds all of them."""

PAGE = 8000
"""Printed lines of all workers together that a result shows."""


@dataclass(frozen=True, slots=True)
class RemoteValue:
    """A value that stayed on its worker: its text, and why it did not travel."""

    text: str
    why: str

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class RemoteError:
    """How a cell failed on one worker.

    Attributes:
        worker: Where.
        ename: The exception's class name.
        evalue: Its message.
        line_number: The line of the cell that it came from, if it came from the cell.
        line: That line's text.
        traceback: The traceback from the cell inwards.
        time: When, in seconds since the epoch on the worker's clock.
        secondary: True where the worker only fell because another one had: it was interrupted or killed
            while it waited.
    """

    worker: Worker
    ename: str
    evalue: str
    line_number: int | None = None
    line: str | None = None
    traceback: str = ""
    time: float = 0.0
    secondary: bool = False

    def __str__(self) -> str:
        return f"{self.ename} on {self.worker}" + (f": {self.evalue}" if self.evalue else "")

    @property
    def message(self) -> str:
        """Class and message, as the last line of a traceback."""
        return f"{self.ename}: {self.evalue}" if self.evalue else self.ename


@dataclass(frozen=True, slots=True)
class WorkerResult:
    """What the cell left on one worker.

    Attributes:
        worker: Which one.
        value: The value of the last expression; a `RemoteValue` where it could not travel.
        value_text: How IPython displays that value; None where the cell ends in no expression.
        value_data: The same as a mime bundle, with pictures and HTML where it has any.
        stdout: All that Python printed, carriage returns resolved.
        stderr: The same for standard error.
        displays: Mime bundles of rich display, in order.
        error: How it failed, if it did.
        seconds: How long it ran on the worker.
    """

    worker: Worker
    value: Any = None
    value_text: str | None = None
    value_data: Mapping[str, Any] = field(default_factory=dict)
    stdout: str = ""
    stderr: str = ""
    displays: tuple[Mapping[str, Any], ...] = ()
    error: RemoteError | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class CellResult:
    """What a cell left on every worker that ran it. All lists are by rank."""

    workers: tuple[WorkerResult, ...]
    total: int = 0
    """Workers of the whole cluster, to tell `all` from a subset."""
    timed_out_after: float | None = None
    """The deadline in seconds that stopped it, if one did."""
    silent_for: float | None = None
    """The seconds of silence that stopped it, if they did."""
    after: str = ""
    """What was done about the gang afterwards, or is to be done, where it did not end well."""
    profile: Profile | None = None
    """Its traces, if it was traced."""

    @property
    def values(self) -> list[Any]:
        """The value of the last expression on each worker."""
        return [worker.value for worker in self.workers]

    @property
    def stdout(self) -> list[str]:
        """What each worker printed."""
        return [worker.stdout for worker in self.workers]

    @property
    def stderr(self) -> list[str]:
        """What each worker wrote to standard error."""
        return [worker.stderr for worker in self.workers]

    @property
    def displays(self) -> list[tuple[Mapping[str, Any], ...]]:
        """Mime bundles that each worker displayed."""
        return [worker.displays for worker in self.workers]

    @property
    def errors(self) -> list[RemoteError | None]:
        """How each worker failed, if it did."""
        return [worker.error for worker in self.workers]

    @property
    def ok(self) -> bool:
        """Whether the cell ended well everywhere, and by itself."""
        return not self._was_stopped and all(worker.error is None for worker in self.workers)

    @property
    def _was_stopped(self) -> bool:
        return self.timed_out_after is not None or self.silent_for is not None

    @property
    def first_error(self) -> RemoteError | None:
        """The failure that came first in time; those that only followed from it come after it."""
        failed = [error for error in self.errors if error is not None]
        return min(failed, key=lambda error: (error.secondary, error.time), default=None)

    def raise_for_error(self) -> None:
        """Raise one exception if the cell failed anywhere.

        Raises:
            errors.WorkerError: Shows the first failure in time; its `result` is this object.
            errors.CellTimeoutError: It was stopped, though it may have caught that and ended well.
        """
        if not self.ok:
            from multislice_nb.cluster.report import worker_error

            raise worker_error(self)

    def _rows(self) -> list[tuple[str, str]]:
        """Pairs of who and what: printed lines merged, then whole values folded, then errors."""
        lines = max(1, min(LINES, PAGE // max(1, len(self.workers))))
        printed = interleave({w.worker.rank: _printed(w, lines) for w in self.workers}, total=self.total)
        values = {w.worker.rank: w.value_text for w in self.workers if w.value_text is not None}
        failed = {w.worker.rank: w.error.message for w in self.workers if w.error}
        rows = printed + fold(values, total=self.total) + fold(failed, total=self.total)
        lone = {f"rank {w.worker.rank}": str(w.worker) for w in self.workers}
        return [(lone.get(who, who), text) for who, text in rows]

    def __str__(self) -> str:
        rows = self._rows()
        if all("\n" not in text for _, text in rows):
            return "\n".join(f"[{who}] {text}" for who, text in rows)
        return "\n".join(f"── {who}\n{text}" for who, text in rows)

    def __repr__(self) -> str:
        failed = sum(error is not None for error in self.errors)
        return f"<CellResult of {len(self.workers)} workers{f', {failed} failed' if failed else ''}>"

    def _repr_html_(self) -> str:
        body = "".join(
            f"<tr><th scope='row' style='text-align:left;vertical-align:top;white-space:nowrap'>{html.escape(who)}</th>"
            f"<td style='text-align:left'><pre style='margin:0'>{html.escape(text)}</pre></td></tr>"
            for who, text in self._rows()
        )
        return f"<table aria-label='Output by worker'>{body}</table>" if body else ""


def _printed(result: WorkerResult, most: int) -> str:
    """What a worker printed, cut to what a screen takes."""
    lines = (result.stdout + result.stderr).splitlines()
    hidden = len(lines) - most
    if hidden <= 0:
        return "\n".join(lines)
    return "\n".join(
        [f"… {grouped(hidden)} lines above: see .stdout, .stderr and the worker's log", *lines[-most:]]
    )


def unpack(packed: Mapping[str, Any] | None) -> Any:
    """A value as the agent packed it: the object itself, or a `RemoteValue`."""
    if packed is None:
        return None
    if "pickle" not in packed:
        return RemoteValue(packed["text"], packed["why"])
    try:
        # From the user's own workers, over their own SSH connection.
        return pickle.loads(packed["pickle"])  # noqa: S301
    except Exception as error:  # noqa: BLE001 - a class may be missing here, or fail to load in its own way
        return RemoteValue("<value>", f"it cannot be unpickled in the notebook: {error}")
