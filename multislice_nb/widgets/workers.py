"""The tab of workers: a grid of all of them, and the log of one."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from multislice_nb.errors import ClusterError
from multislice_nb.widgets.fields import set_options
from multislice_nb.widgets.tables import workers_html

if TYPE_CHECKING:
    from pathlib import Path

    from multislice_nb.widgets.session import Session
    from multislice_nb.widgets.snapshot import ClusterLook, Snapshot

__all__ = ["Workers"]

_TAIL = 16 * 1024
"""Bytes of a log's end that the panel shows; the file has all of it."""


class Workers:
    """Which cluster, its grid, and one worker's log. `show` draws a snapshot."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._snapshot: Snapshot | None = None
        self._running: dict[str, frozenset[int]] = {}
        self.choice = widgets.Dropdown(
            description="Cluster", options=[], layout=widgets.Layout(width="300px")
        )
        self.rank = widgets.BoundedIntText(
            description="Log of rank",
            min=0,
            max=0,
            layout=widgets.Layout(width="190px"),
            style={"description_width": "initial"},
        )
        self._grid = widgets.HTML()
        self._log = widgets.HTML()
        self._bar = widgets.HBox([self.choice, self.rank], layout=widgets.Layout(display="none"))
        self.view = widgets.VBox([self._bar, self._grid, self._log])
        self.choice.observe(self._draw, "value")
        self.rank.observe(self._draw, "value")

    def show(self, snapshot: Snapshot) -> None:
        """Draw what there is now."""
        self._snapshot = snapshot
        names = [cluster.name for cluster in snapshot.clusters]
        set_options(self.choice, names)
        self._draw()

    def busy(self, name: str, ranks: frozenset[int]) -> None:
        """These ranks of a cluster run a cell; none when it is over."""
        self._running[name] = ranks
        self._draw()

    def _draw(self, _: Any = None) -> None:
        cluster = self._snapshot.cluster(self.choice.value) if self._snapshot and self.choice.value else None
        self._bar.layout.display = None if cluster else "none"
        if cluster is None:
            self._grid.value = (
                '<div class="msnb msnb-empty">No cluster is attached. Attach one in the first tab, '
                'or with <code class="msnb-code">%multislice attach NAME</code></div>'
            )
            self._log.value = ""
            return
        self.rank.max = max(len(cluster.workers) - 1, 0)
        running = self._running.get(cluster.name, frozenset())
        late = running if len(running) < len(cluster.workers) else frozenset()
        self._grid.value = workers_html(cluster, behind=late, running=bool(running))
        self._log.value = self._log_html(cluster)

    def _log_html(self, cluster: ClusterLook) -> str:
        worker = cluster.workers[min(self.rank.value, len(cluster.workers) - 1)]
        try:
            path = self._session.cluster(cluster.name).journal.path(worker.rank)
        except ClusterError:
            return ""
        text = _tail(path)
        body = html.escape(text) if text else "Nothing was printed on this worker yet."
        return (
            f'<div class="msnb"><p><b>{html.escape(worker.name)}</b> '
            f'<span class="msnb-muted">{html.escape(worker.node_id)} · {html.escape(str(path))}</span></p>'
            f'<div class="msnb-code msnb-log" tabindex="0" role="log" aria-label="Log of {html.escape(worker.name)}">{body}</div></div>'
        )


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
