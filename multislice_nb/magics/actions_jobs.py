"""The subcommands about jobs, which run unattended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from multislice_nb.magics.base import Base
from multislice_nb.magics.views import Note

if TYPE_CHECKING:
    from collections.abc import Callable

    from multislice_nb.jobs import Job, Jobs

__all__ = ["JobActions"]

_TAIL = 200
"""Lines of a job's log that are shown; all of them are in the store."""


class JobActions(Base):
    """Each method is a subcommand."""

    def submit(self, name: str, *, command: str, accelerator_type: str, **options: Any) -> Any:
        """`submit`."""
        from multislice_nb import jobs

        cloud = self.session.connected()
        return jobs.submit(name, command, accelerator_type=accelerator_type, cloud=cloud, **options)

    def jobs(self, *, store: str | None = None) -> Jobs:
        """`jobs`."""
        from multislice_nb import jobs

        return jobs.list(store=store, cloud=self.session.connected())

    def job(
        self,
        action: str,
        name: str,
        *,
        store: str | None = None,
        lines: int = _TAIL,
        folder: str | None = None,
    ) -> Any:
        """`job`."""
        from multislice_nb import jobs

        job = jobs.get(name, store=store, cloud=self.session.connected())
        actions: dict[str, Callable[[], Any]] = {
            "wait": lambda: self._awaited_job(job),
            "logs": lambda: Note("\n".join(map(str, list(job.logs())[-lines:])) or "Nothing was logged yet."),
            "errors": lambda: Note("\n".join(map(str, job.errors())) or "No errors."),
            "results": lambda: Note("\n".join(map(str, job.results(folder or name))) or "No results yet."),
            "cancel": job.cancel,
            "retry": job.retry,
            "remove": lambda: self._removed(job),
        }
        return actions[action]() if action in actions else job

    @staticmethod
    def _removed(job: Job) -> Note:
        job.remove()
        return Note(f"{job.name} was removed from the store.")

    def _awaited_job(self, job: Job) -> Any:
        line = self._line()
        status = job.wait(progress=lambda look: line.show(str(look), step=f"{job.name} {look.state}"))
        line.end(str(status) if line.watched else "")
        return status
