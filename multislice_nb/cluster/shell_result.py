"""What a shell command left on every worker."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from multislice_nb import errors
from multislice_nb.cluster.inventory import ranks_text
from multislice_nb.cluster.result import CellResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from multislice_nb.cluster.result import RemoteError

__all__ = ["ShellResult", "status_text"]

FIX = "Mend the command, or the worker that it failed on, and run it again."


def status_text(status: int | None) -> str:
    """An exit status in words; a negative one is the signal that ended it."""
    if status is None:
        return "its end was not seen"
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


class ShellResult(CellResult):
    """A cell's result whose values are exit statuses; negative ones are signals, None was not seen."""

    @property
    def exit_statuses(self) -> list[int | None]:
        """The exit status on each worker."""
        return self.values

    def raise_for_error(self) -> None:
        """Raise one exception if the command failed anywhere.

        Raises:
            errors.WorkerError: Shows the first failure in time; its `result` is this object.
            errors.CellTimeoutError: It ran past its deadline somewhere.
        """
        from multislice_nb.cluster.report import worker_error

        if self.first_error is None:
            return
        if self.timed_out_after is not None:
            late = [e.worker.rank for e in self.errors if e is not None and e.secondary]
            error: errors.WorkerError = errors.CellTimeoutError(
                f"The command ran past its {self.timed_out_after:g} s on {ranks_text(late, total=self.total)} "
                f"and was stopped.{self._others(self.errors)}",
                fix="Give it more time, or start it detached.",
            )
        else:
            found = worker_error(self)
            error = type(found)(found.what, fix=FIX)
        error.result = self
        raise error

    @staticmethod
    def _others(failures: Sequence[RemoteError | None]) -> str:
        own = [error for error in failures if error is not None and not error.secondary]
        return f" Before that, {own[0]}" if own else ""

    def __repr__(self) -> str:
        failed = sum(error is not None for error in self.errors)
        return f"<ShellResult of {len(self.workers)} workers{f', {failed} failed' if failed else ''}>"
