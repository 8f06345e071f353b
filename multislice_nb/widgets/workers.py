"""The tab of workers: a grid of all of them, those that stand out, and one in detail with its log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from multislice_nb.errors import ClusterError
from multislice_nb.widgets.fields import Choice, row
from multislice_nb.widgets.grid import Grid
from multislice_nb.widgets.rounds import rounds_of
from multislice_nb.widgets.worker_tables import FILLS, legend_html, levels, one_html, table

if TYPE_CHECKING:
    from pathlib import Path

    from multislice_nb.cluster import UsageReport
    from multislice_nb.widgets.loop import KernelLoop
    from multislice_nb.widgets.session import Session
    from multislice_nb.widgets.snapshot import ClusterLook, Snapshot

__all__ = ["Workers"]

_TAIL = 16 * 1024
"""Bytes of a log's end that the panel shows; the file has all of it."""
_EMPTY = (
    '<div class="msnb msnb-empty">No workers. Ask for slices in the first tab, '
    'or with <code class="msnb-code">%multislice create NAME</code></div>'
)


class Workers:
    """Which cluster, its grid, and one worker's log. `show` draws a snapshot.

    Args:
        session: Whose clusters.
        loop: Where widgets may be changed.
    """

    def __init__(self, session: Session, loop: KernelLoop) -> None:
        self._session = session
        self._loop = loop
        self._rounds = rounds_of(session)
        self._snapshot: Snapshot | None = None
        self._open = False
        self.choice = Choice(description="Workers of", options=[], layout=widgets.Layout(width="300px"))
        self.rank = widgets.BoundedIntText(
            description="Log of rank",
            min=0,
            max=0,
            layout=widgets.Layout(width="170px"),
            style={"description_width": "initial"},
        )
        self.fill = widgets.Dropdown(
            description="Cells filled by",
            options=list(FILLS),
            layout=widgets.Layout(width="250px"),
            style={"description_width": "initial"},
        )
        self._fill_chosen = False
        self._legend = widgets.HTML()
        self.grid = Grid(self._pressed)
        self._table = widgets.HTML()
        self._log = widgets.HTML(layout=widgets.Layout(flex="1 1 380px", min_width="0"))
        self._bar = widgets.HBox([self.choice, self.rank, self.fill], layout=row())
        self._body = widgets.HBox(
            [self.grid.view, self._log], layout=widgets.Layout(flex_flow="row wrap", grid_gap="6px 18px")
        )
        self._nobody = widgets.HTML(_EMPTY)
        self.view = widgets.VBox([self._nobody, self._bar, self._legend, self._body, self._table])
        self.choice.observe(self._chosen, "value")
        self.rank.observe(self._draw, "value")
        self.fill.observe(self._filled, "value")
        self._draw()

    def show(self, snapshot: Snapshot) -> None:
        """Draw what there is now."""
        self._snapshot = snapshot
        self.choice.offer(list(snapshot.with_workers))
        self._draw()

    def open(self, shown: bool) -> None:
        """Whether somebody sees it: workers are asked how much of them is used only while that is so."""
        self._open = shown
        self._watch()
        if shown:
            self._draw()

    def _watch(self) -> None:
        if self._open and self.choice.value:
            self._rounds.subscribe(self, self.choice.value, self._loop, self._draw)
        else:
            self._rounds.unsubscribe(self)

    def _chosen(self, _: Any) -> None:
        self._watch()
        self._draw()

    def _pressed(self, rank: int) -> None:
        self.rank.value = rank

    def _filled(self, _: Any) -> None:
        self._fill_chosen = True
        self._draw()

    def _draw(self, _: Any = None) -> None:
        name = self.choice.value
        cluster = self._snapshot.look(name) if self._snapshot and name else None
        for part in (self._bar, self._legend, self._body, self._table):
            part.layout.display = None if cluster else "none"
        self._nobody.layout.display = "none" if cluster else None
        if cluster is None or not self._open:
            return
        report = self._rounds.last.get(cluster.name) if cluster.attached else None
        usage = report.workers if report is not None else {}
        if usage and not self._fill_chosen:
            self._choose_fill(on_tpu=any(use.devices for use in usage.values()))
        self.rank.max = max((worker.rank for worker in cluster.workers), default=0)
        self.fill.layout.display = None if cluster.attached else "none"
        self._legend.value = legend_html(cluster, usage)
        self.grid.draw(cluster, levels(usage, self.fill.value), self.rank.value)
        self._table.value = table(cluster, usage, self.rank.value)
        self._log.value = self._one(cluster, report)

    def _choose_fill(self, *, on_tpu: bool) -> None:
        wanted = "HBM in use" if on_tpu else "memory in use"
        if self.fill.value != wanted:
            self.fill.unobserve(self._filled, "value")
            self.fill.value = wanted
            self.fill.observe(self._filled, "value")

    def _one(self, cluster: ClusterLook, report: UsageReport | None) -> str:
        worker = min(cluster.workers, key=lambda one: abs(one.rank - self.rank.value))
        use = report.workers.get(worker.rank) if report else None
        silent = report.silent.get(worker.rank, "") if report else ""
        try:
            path = self._session.cluster(cluster.name).journal.path(worker.rank)
        except ClusterError:
            return one_html(worker, use, silent, "", "")
        return one_html(worker, use, silent, _tail(path), str(path))


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL))
            text = file.read().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    cut = size > _TAIL
    return ("…\n" + text.partition("\n")[2] if cut else text).rstrip("\n")
