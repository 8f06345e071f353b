"""The tab that runs code on the workers, while the kernel stays free."""

from __future__ import annotations

import asyncio
import html
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from multislice_nb.errors import ClusterError, MultisliceError
from multislice_nb.widgets.fields import Choice, button, row

if TYPE_CHECKING:
    from collections.abc import Callable

    from multislice_nb.cluster import CellHandle, CellResult, Cluster
    from multislice_nb.widgets.loop import KernelLoop
    from multislice_nb.widgets.outcome import Desk
    from multislice_nb.widgets.session import Session
    from multislice_nb.widgets.snapshot import Snapshot

__all__ = ["Runner"]

_EMPTY = (
    '<div class="msnb msnb-empty">No workers are attached. Attach in the first tab, '
    'or with <code class="msnb-code">%multislice attach NAME</code></div>'
)
_PAUSE = 0.2
"""Seconds between two looks at a running cell."""


class Runner:
    """Code, which workers, and what they say.

    Args:
        session: Whose clusters.
        desk: Takes the work.
        loop: Where widgets may be changed.
    """

    def __init__(self, session: Session, desk: Desk, loop: KernelLoop) -> None:
        self._session = session
        self._desk = desk
        self._loop = loop
        self._handle: CellHandle | None = None
        self._cluster: Cluster | None = None
        self.choice = Choice(description="Cluster", options=[], layout=widgets.Layout(width="300px"))
        self.ranks = widgets.Text(
            description="Ranks", placeholder="all; or as 0,2-3", layout=widgets.Layout(width="260px")
        )
        self.code = widgets.Textarea(
            value="import jax\njax.device_count()",
            layout=widgets.Layout(width="calc(100% - 4px)", height="110px"),
        )
        self.code.tooltip = "Code that runs on every worker"
        self.code.add_class("msnb-editor")
        self.run = button("Run on all workers", "play", "Run the code as one gang operation", "primary")
        self.stop = button("Interrupt", "stop", "Interrupt what runs on the workers")
        self._output = widgets.HTML()
        bar = widgets.HBox([self.choice, self.ranks, self.run, self.stop], layout=row())
        self._nobody = widgets.HTML(_EMPTY)
        self.view = widgets.VBox([bar, self._nobody, self.code, self._output])
        self.run.on_click(lambda _: self._run())
        self.stop.on_click(lambda _: self._stop())
        self.ranks.observe(self._named, "value")
        self._draw_buttons()

    def show(self, snapshot: Snapshot) -> None:
        """Offer the clusters there are."""
        self.choice.offer([cluster.name for cluster in snapshot.clusters])
        self._draw_buttons()

    def _named(self, _: Any) -> None:
        self.run.description = (
            f"Run on ranks {self.ranks.value}" if self.ranks.value else "Run on all workers"
        )

    def _draw_buttons(self) -> None:
        running = self._handle is not None
        self.run.disabled = running or not self.choice.value
        self._nobody.layout.display = "none" if self.choice.value else None
        self.stop.disabled = not running

    def _run(self) -> None:
        code, name, chosen = self.code.value, self.choice.value, self.ranks.value.strip() or None
        try:
            cluster = self._session.cluster(name)
            handle = self._handle = cluster.submit(code, ranks=chosen)
            self._cluster = cluster
        except MultisliceError as error:
            self._desk.note(str(error), tone="bad")
            return
        self._draw_buttons()
        self._write("")

        async def work(_: Callable[[str], None]) -> CellResult:
            seen = None
            while not handle.done:
                await asyncio.sleep(_PAUSE)
                if handle.progress is not None and handle.progress is not seen:
                    seen = handle.progress
                    self._loop.call(lambda look=seen: self._write(str(look)))  # type: ignore[misc]
            return await asyncio.to_thread(handle.result, check=False)

        flag = f" --ranks {chosen}" if chosen else ""
        flag += f" --cluster {name}" if cluster is not self._session.cluster() else ""
        self._desk.start(
            f"Running on {name}",
            work,
            done=lambda result: _summary(name, result),
            magic=f"%%multislice{flag}",
            then=self._finish,
            after=self._ended,
        )

    def _finish(self, result: CellResult) -> None:
        from multislice_nb.cluster.report import worker_error

        told = [str(result)] if result.ok else [str(result), str(worker_error(result))]
        self._write("\n".join(part for part in told if part) or "No output.")

    def _ended(self) -> None:
        self._handle = self._cluster = None
        self._draw_buttons()

    def _stop(self) -> None:
        cluster = self._cluster
        if cluster is None:
            return
        try:
            cluster.interrupt()
        except ClusterError as error:
            self._desk.note(str(error), tone="bad")
        else:
            self._desk.note(
                f"The workers of {cluster.name} were interrupted.",
                tone="warning",
                magic=f"%multislice interrupt {cluster.name}",
            )

    def _write(self, text: str) -> None:
        body = html.escape(text)
        self._output.value = (
            f'<div class="msnb"><div class="msnb-code msnb-log" role="log" tabindex="0" '
            f'aria-label="Output of the workers">{body}</div></div>'
            if text
            else ""
        )


def _summary(name: str, result: CellResult) -> str:
    seconds = max((worker.seconds for worker in result.workers), default=0.0)
    if result.ok:
        return f"{name}: done on {len(result.workers)} workers in {seconds:.2f} s"
    first = result.first_error
    return f"{name}: failed. {first}" if first else f"{name}: failed."
