"""The subcommands about jobs, which run unattended."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import re
from typing import TYPE_CHECKING, Any

from multislice_nb.errors import MagicError
from multislice_nb.magics.base import Base, literal
from multislice_nb.magics.views import Note

if TYPE_CHECKING:
    from collections.abc import Sequence

    from multislice_nb.jobs import DryRun, Job, Jobs, JobStatus, Limits, Manifest

__all__ = ["JobActions"]

_LINES = 200
"""Lines of a job's log that are shown; all of them are in the store."""


class JobActions(Base):
    """Each method is a subcommand."""

    def job_submit(
        self,
        name: str,
        *,
        accelerator_type: str,
        command: str | None = None,
        notebook: str | None = None,
        cells: Sequence[int] | None = None,
        parameters: dict[str, str] | None = None,
        time_limit: str | None = None,
        max_restarts: int | None = None,
        **options: Any,
    ) -> Job | DryRun:
        """`job submit`."""
        from multislice_nb import jobs

        if command is not None and (notebook or cells):
            raise MagicError(
                "A job runs either a command or a notebook.",
                fix="Leave out the command, --notebook or --cells.",
            )
        if parameters and command is not None:
            raise MagicError("A command has no parameters.", fix="Give it arguments, or --env KEY=VALUE.")
        cloud = self.session.connected()
        options |= {"accelerator_type": accelerator_type, "cloud": cloud}
        if time_limit is not None or max_restarts is not None:
            options["limits"] = _limits(time_limit, max_restarts, emulated=cloud.is_emulator)
        if command is not None:
            made = jobs.submit(name, command, **options)
        else:
            source: str | Sequence[int] = cells or str(notebook)
            values = {key: literal(text) for key, text in (parameters or {}).items()}
            made = jobs.submit_notebook(name, source, parameters=values, **options)
        if not options.get("dry_run"):
            self.session.know(name)
        return made

    def job_list(self, *, store: str | None = None) -> Jobs:
        """`job list`."""
        from multislice_nb import jobs

        return jobs.list(store=store, cloud=self.session.connected())

    def job_status(self, name: str, *, store: str | None = None) -> JobStatus:
        """`job status`."""
        return self._job(name, store).tend()

    def job_wait(self, name: str, *, store: str | None = None, timeout: str | None = None) -> JobStatus:
        """`job wait`."""
        job, line = self._job(name, store), self._line()
        status = job.wait(
            timeout=timeout, progress=lambda look: line.show(str(look), step=f"{job.name} {look.state}")
        )
        line.end()
        return status

    def job_logs(
        self,
        name: str,
        *,
        store: str | None = None,
        follow: bool = False,
        ranks: Sequence[int] | None = None,
        attempt: int | None = None,
        grep: str | None = None,
        errors: bool = False,
        supervisor: bool = False,
        lines: int | None = _LINES,
    ) -> Note | None:
        """`job logs`."""
        job, wanted = self._job(name, store), _pattern(grep)
        found = job.logs(ranks=ranks, attempt=attempt, follow=follow, supervisor=supervisor, errors=errors)
        read = (line for line in found if wanted.search(line.text))
        if follow or (lines is None and not errors):
            for line in read:
                print(line, flush=True)
            return None
        kept = itertools.islice(read, lines) if errors else collections.deque(read, maxlen=lines)
        return Note(
            "\n".join(map(str, kept)) or _nothing(grep, "No errors." if errors else "Nothing was logged yet.")
        )

    def job_results(self, name: str, folder: str | None = None, *, store: str | None = None) -> Note:
        """`job results`."""
        found = self._job(name, store).results(folder or name)
        return Note("\n".join(map(str, found)) or f"Job {name} has no results yet.")

    def job_cancel(self, name: str, *, store: str | None = None) -> Note:
        """`job cancel`."""
        return Note(self._job(name, store).cancel().ending())

    def job_retry(self, name: str, *, node_count: int | None = None, store: str | None = None) -> Job:
        """`job retry`."""
        return self._job(name, store).retry(node_count=node_count)

    def job_remove(self, name: str, *, store: str | None = None) -> Note:
        """`job remove`."""
        self._job(name, store).remove()
        return Note(f"Job {name} was removed from the store.")

    def job_jobset(self, name: str, *, image: str, store: str | None = None, **options: Any) -> Manifest:
        """`job jobset`."""
        return self._job(name, store).jobset(image, **options)

    def _job(self, name: str, store: str | None) -> Job:
        from multislice_nb import jobs

        return jobs.get(name, store=store, cloud=self.session.connected())


def _limits(time_limit: str | None, max_restarts: int | None, *, emulated: bool) -> Limits:
    from multislice_nb.cloud.times import parse_duration
    from multislice_nb.jobs import Limits
    from multislice_nb.jobs.submitting import emulator_limits

    limits = emulator_limits() if emulated else Limits()
    if time_limit is not None:
        limits = dataclasses.replace(limits, time_limit=parse_duration(time_limit).total_seconds())
    if max_restarts is not None:
        limits = dataclasses.replace(limits, max_restarts=max_restarts)
    return limits


def _nothing(grep: str | None, otherwise: str) -> str:
    return otherwise if grep is None else f"No line matches {grep!r}."


def _pattern(text: str | None) -> re.Pattern[str]:
    try:
        return re.compile(text or "")
    except re.error as error:
        raise MagicError(
            f"{text!r} is no regular expression: {error}.",
            fix="Put a backslash before what is meant literally.",
        ) from error
