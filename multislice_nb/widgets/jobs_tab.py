"""The tab of jobs: what runs unattended, its log, and cancelling it."""

from __future__ import annotations

import asyncio
import html
import itertools
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from multislice_nb.widgets.fields import Choice, button, row
from multislice_nb.widgets.question import Question
from multislice_nb.widgets.style import state_html
from multislice_nb.widgets.tables import table_html

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from multislice_nb.jobs import Job, JobStatus, LogLine
    from multislice_nb.widgets.outcome import Desk
    from multislice_nb.widgets.session import Session
    from multislice_nb.widgets.snapshot import Snapshot

__all__ = ["JobsTab"]

_FRESH = 2.0
"""Seconds for which the store is not asked again."""
_LINES = 200
_COLUMNS = ("State", "Job", "Run", "Slices", "For", "Attempts", "Queued resource", "Notice")


class JobsTab:
    """A table of jobs, one chosen, and what can be done with it.

    Args:
        session: Its connection is the jobs'.
        desk: Takes the work.
        place: Where jobs are kept; the default store when None.
    """

    def __init__(self, session: Session, desk: Desk, place: str | None = None) -> None:
        self._session = session
        self._desk = desk
        self._place = place
        self._asked_at = float("-inf")
        self._asking = False
        self._jobs: tuple[JobStatus, ...] = ()
        self._table = widgets.HTML()
        self._detail = widgets.HTML()
        self.choice = Choice(description="Selected", options=[], tooltip="Job")
        self.logs = button("Logs", "file-text", "The last lines of all its workers")
        self.errors = button(
            "Errors", "exclamation-triangle", "Lines that look like errors, the first in time first"
        )
        self.cancel = button("Cancel…", "stop", "End it; asks first")
        self.question = Question("stop", "Go on", ("End it now", "Do not end it"), self._cancel)
        self._bar = widgets.HBox([self.choice, self.logs, self.errors, self.cancel], layout=row())
        self._bar.layout.display = "none"
        self.view = widgets.VBox([self._table, self._bar, self.question.view, self._detail])
        self.choice.observe(self._chosen, "value")
        self.logs.on_click(lambda _: self._read("", lambda job: deque(job.logs(), maxlen=_LINES)))
        self.errors.on_click(lambda _: self._read(" --errors", lambda job: job.errors()[:_LINES]))
        self.cancel.on_click(lambda _: self._ask())
        self._draw()

    def show(self, _: Snapshot) -> None:
        """Ask the store again, in a thread, unless that was just done."""
        cloud = self._session.cloud
        if cloud is None or self._asking or time.monotonic() - self._asked_at < _FRESH:
            return
        self._asking, self._asked_at = True, time.monotonic()

        def look() -> tuple[JobStatus, ...]:
            from multislice_nb import jobs

            return tuple(jobs.list(store=self._place, cloud=cloud))

        async def work(_: Callable[[str], None]) -> tuple[JobStatus, ...]:
            try:
                return await asyncio.to_thread(look)
            finally:
                self._asking = False

        self._desk.quietly(work, then=self._found)

    def _found(self, found: tuple[JobStatus, ...]) -> None:
        self._jobs = found
        self.choice.offer([status.name for status in found])
        self._draw()

    def _chosen(self, _: Any) -> None:
        self.question.hide()
        self._detail.value = ""
        self._draw()

    def _status(self) -> JobStatus | None:
        return next((status for status in self._jobs if status.name == self.choice.value), None)

    def _draw(self) -> None:
        status = self._status()
        self._bar.layout.display = None if status else "none"
        self.cancel.disabled = status is None or status.is_over
        self.question.allow(not self.cancel.disabled)
        if not self._jobs:
            self._table.value = (
                '<div class="msnb msnb-empty">No jobs. Submit one with <code class="msnb-code">'
                "%multislice job submit NAME --accelerator-type v4-16 python3 train.py</code></div>"
            )
            return
        rows = [(one is status, _cells(one)) for one in self._jobs]
        self._table.value = table_html("Jobs", _COLUMNS, rows)

    def _job(self, name: str) -> Job:
        from multislice_nb import jobs

        return jobs.get(name, store=self._place, cloud=self._session.connected())

    def _read(self, flag: str, lines: Callable[[Job], Iterable[LogLine]]) -> None:
        """Read lines of the chosen job's log in a thread and show them, with the magic that does the same."""
        name = self.choice.value

        async def work(_: Callable[[str], None]) -> str:
            return await asyncio.to_thread(lambda: "\n".join(map(str, lines(self._job(name)))))

        nothing = "No errors." if flag else "Nothing was logged yet."
        self._desk.quietly(
            work, then=lambda text: self._show_log(name, f"job logs {name}{flag}", text or nothing)
        )

    def _show_log(self, name: str, magic: str, text: str) -> None:
        status = self._status()
        link = status.log_link if status and status.name == name else ""
        outside = f' · <a href="{html.escape(link)}" target="_blank">Cloud Logging</a>' if link else ""
        self._detail.value = (
            f'<div class="msnb"><p><b>{html.escape(name)}</b> <span class="msnb-muted">[attempt:rank] · '
            f'<code class="msnb-code">%multislice {html.escape(magic)}</code>{outside}</span></p>'
            f'<div class="msnb-code msnb-log" tabindex="0" role="log" aria-label="Log of {html.escape(name)}">'
            f"{html.escape(text)}</div></div>"
        )

    def _ask(self) -> None:
        status = self._status()
        if status is None:
            return
        told = (
            f"End {status.name} ({status.shape}) on all its workers? Logs and results are kept, "
            "its slices are deleted."
        )
        self.question.ask(told, "Cancel it")

    def _cancel(self) -> None:
        name = self.choice.value
        self.question.hide()

        async def work(_: Callable[[str], None]) -> None:
            await asyncio.to_thread(lambda: self._job(name).cancel())

        self._asked_at = float("-inf")
        self._desk.start(
            f"Cancelling {name}",
            work,
            done=f"{name} ends; its logs and results are kept.",
            magic=f"%multislice job cancel {name}",
        )


def _cells(status: JobStatus) -> Sequence[str]:
    name, run, shape, state, *rest = status.row()
    texts = itertools.chain([name, run, shape], rest)
    return [state_html(state), *map(html.escape, texts)]
