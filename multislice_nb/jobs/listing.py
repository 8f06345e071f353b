"""All jobs of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multislice_nb.cloud.display import html_table, text_table
from multislice_nb.errors import MultisliceError
from multislice_nb.jobs.job import Job
from multislice_nb.jobs.status import JobStatus
from multislice_nb.jobs.store import Store
from multislice_nb.jobs.submitting import default_store

if TYPE_CHECKING:
    from pathlib import Path

    from multislice_nb.cloud import Cloud

__all__ = ["Jobs", "get", "list_jobs"]

_HEADER = ("job", "run", "slices", "state", "for", "attempts", "queued resource", "reason")


class Jobs(tuple[JobStatus, ...]):
    """Statuses of jobs, as a table."""

    __slots__ = ()

    def __str__(self) -> str:
        return text_table(_HEADER, [status.row() for status in self]) if self else "No jobs."

    def _repr_html_(self) -> str:
        return html_table(_HEADER, [status.row() for status in self]) if self else "<p>No jobs.</p>"


def get(name: str, *, store: str | Path | Store | None = None, cloud: Cloud | None = None) -> Job:
    """A handle on an existing job.

    Raises:
        NotFoundError: There is none of that name.
    """
    return Job(_store(store), name, cloud=cloud)


def list_jobs(*, store: str | Path | Store | None = None, cloud: Cloud | None = None) -> Jobs:
    """All jobs of a store, the newest first; what is left of jobs that have ended is cleaned up on the way.

    Where one cannot be looked at, that is told in its place.
    """
    place = _store(store)
    found = [_tended(place, name, cloud) for name in place.list("jobs")]
    return Jobs(sorted(found, key=lambda status: -status.submitted))


def _tended(store: Store, name: str, cloud: Cloud | None) -> JobStatus:
    try:
        return Job(store, name, cloud=cloud).tend()
    # A document that somebody has spoilt is of any form.
    except (MultisliceError, ValueError, TypeError, KeyError, AttributeError) as error:
        what = error.what if isinstance(error, MultisliceError) else f"its record is broken: {error}"
        return JobStatus(
            name=name,
            run=0,
            state="unknown",
            reason=" ".join(what.split()),
            queued_resource="",
            submitted=0.0,
            ended=None,
            attempts=(),
            workers=(),
        )


def _store(store: str | Path | Store | None) -> Store:
    if isinstance(store, Store):
        return store
    return Store(store) if store else default_store()
