"""All workers as a grid of buttons, readable from four to a thousand, made of one core widget.

A thousand widgets of their own would take seconds to appear. One set of toggle buttons takes a click on any
of its thousand, and rules of style by their number paint what changes, so that the page is not rebuilt and a
reader's place in it is kept.
"""

from __future__ import annotations

import collections
import html
import itertools
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import ipywidgets as widgets

from multislice_nb.widgets.roving import roving
from multislice_nb.widgets.style import look_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from multislice_nb.widgets.snapshot import ClusterLook, WorkerLook

__all__ = ["Grid", "columns_of", "paint"]

_WIDEST = 32
_LEVELS = 8
"""Steps of the fill: an eighth is what the eye tells apart in a cell of 14 pixels."""
_FEW, _SOME = 64, 256
_SIZES = {"few": (52, 26, 4), "some": (20, 20, 3), "many": (13, 13, 2)}
"""Pixels of a cell's width and height and between two, by how many there are."""
_RING = 4
"""Pixels for what is drawn around the button that has the focus, below the last row too when that is scrolled to."""
_numbers = itertools.count(1)


def columns_of(workers: int, per_slice: int) -> int:
    """How many cells stand in a row: whole slices, or a whole part of one, where that is possible."""
    if per_slice > _WIDEST:
        return next((count for count in range(_WIDEST, _WIDEST // 2, -1) if per_slice % count == 0), _WIDEST)
    if workers <= 16 * per_slice and per_slice > 1:
        return per_slice if workers <= _FEW or per_slice > _WIDEST // 2 else 2 * per_slice
    return per_slice * max(1, min(_WIDEST // per_slice, -(-workers // per_slice)))


def paint(scope: str, states: Sequence[str], levels: Mapping[int, int]) -> str:
    """Rules of style for what the workers are: their state, and the level of their fill.

    Args:
        scope: The class of the grid.
        states: In the buttons' order.
        levels: By a button's place, from 0 to 8; those that it lacks have no fill.
    """
    by_state: dict[str, list[int]] = collections.defaultdict(list)
    for place, state in enumerate(states):
        by_state[state].append(place)
    rules = []
    usual = max(by_state, key=lambda state: len(by_state[state]), default=None)
    for state, places in by_state.items():
        look = look_of(state)
        picture = quote(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 12 12" color="black">{look.shape}</svg>'
        )
        where = f".{scope} button" if state == usual else _cells(scope, places)
        rules.append(
            f"{where}{{--msnb-tone:var(--msnb-{look.tone});--msnb-mark:url('data:image/svg+xml,{picture}')}}"
        )
    by_level: dict[int, list[int]] = collections.defaultdict(list)
    for place, level in levels.items():
        by_level[level].append(place)
    rules += [
        f"{_cells(scope, places)}{{--msnb-fill:{100 * level / _LEVELS:g}%}}"
        for level, places in by_level.items()
        if level
    ]
    return f"<style>{''.join(sorted(rules, key=lambda rule: ':is(' in rule))}</style>"


def _cells(scope: str, places: Iterable[int]) -> str:
    return f".{scope} button:is({','.join(f':nth-child({place + 1})' for place in places)})"


class Grid:
    """The buttons, what they are painted with, and the ranks at their left.

    Args:
        chosen: Called with the rank of the button that was pressed.
    """

    def __init__(self, chosen: Callable[[int], None]) -> None:
        self._chosen = chosen
        self._scope = f"msnb-grid-{next(_numbers)}"
        self._shape: tuple[object, ...] = ()
        self._ranks: list[int] = []
        self._quiet = False
        self._rules = widgets.HTML(layout=widgets.Layout(display="none"))
        self._paint = widgets.HTML(layout=widgets.Layout(display="none"))
        self._rows = widgets.HTML()
        self.buttons = widgets.ToggleButtons(options=[], value=None, layout=widgets.Layout(width="auto"))
        self.buttons.add_class("msnb-workers")
        self.buttons.add_class(self._scope)
        self.view = widgets.HBox(
            [self._rows, self.buttons, self._rules, self._paint, roving(self._scope)],
            layout=widgets.Layout(
                max_height="480px", overflow="auto", flex="0 0 auto", max_width="100%", padding="4px 4px 0"
            ),
        )
        self.buttons.observe(self._pressed, "index")

    def draw(self, cluster: ClusterLook, levels: Mapping[int, int], chosen: int) -> None:
        """Show a cluster; only what changed is sent to the page."""
        shape = (cluster.name, tuple((worker.node_id, worker.worker_id) for worker in cluster.workers))
        if shape != self._shape:
            self._shape = shape
            self._lay_out(cluster)
        # Ranks and places differ where a slice is not there.
        places = {rank: place for place, rank in enumerate(self._ranks)}
        if self.buttons.index != places.get(chosen):
            self._quiet = True
            self.buttons.index = places.get(chosen)
            self._quiet = False
        filled = {places[rank]: level for rank, level in levels.items() if rank in places}
        rules = paint(self._scope, [worker.state for worker in cluster.workers], filled)
        if self._paint.value != rules:
            self._paint.value = rules

    def _lay_out(self, cluster: ClusterLook) -> None:
        workers = cluster.workers
        self._ranks = [worker.rank for worker in workers]
        per_slice = max((worker.worker_id for worker in workers), default=0) + 1
        size = "few" if len(workers) <= _FEW else "some" if len(workers) <= _SOME else "many"
        columns = columns_of(len(workers), per_slice)
        self._quiet = True
        with self.buttons.hold_sync():
            self.buttons.options = [str(worker.rank) for worker in workers]
            self.buttons.tooltips = [f"{worker.name} · {worker.node_id}" for worker in workers]
            self.buttons.index = None
        self._quiet = False
        self._rules.value = _rules(self._scope, size, columns, per_slice)
        self._rows.value = _labels(size, columns, workers)

    def _pressed(self, change: Any) -> None:
        if not self._quiet and change["new"] is not None:
            self._chosen(self._ranks[change["new"]])


def _rules(scope: str, size: str, columns: int, per_slice: int) -> str:
    width, height, gap = _SIZES[size]
    text = "" if size == "few" else f".{scope} .jupyter-button{{font-size:0;gap:0}}"
    # Slices that share a row are told apart by a wider gap.
    apart = (
        f".{scope} button:nth-child({per_slice}n+1){{margin-left:{2 * gap}px}}"
        if 1 < per_slice < columns
        else ""
    )
    tracks = " ".join(
        f"{width + (2 * gap if 1 < per_slice < columns and place % per_slice == 0 else 0)}px"
        for place in range(columns)
    )
    return (
        f"<style>.{scope}>div{{display:grid;grid-template-columns:{tracks};grid-auto-rows:{height}px;gap:{gap}px;"
        f"padding-bottom:{_RING}px}}{text}{apart}</style>"
    )


def _labels(size: str, columns: int, workers: Sequence[WorkerLook]) -> str:
    """Beside each row, its slices and its ranks."""
    _, height, gap = _SIZES[size]
    lines = []
    for first, last in (
        (row[0], row[-1]) for row in (workers[at : at + columns] for at in range(0, len(workers), columns))
    ):
        slices = _range(first.slice_id, last.slice_id)
        lines.append(
            f"<div>slice{'s' if '–' in slices else ''} {slices} · {_range(first.rank, last.rank)}</div>"
        )
    return html_rows(height, gap, lines)


def html_rows(height: int, gap: int, lines: Sequence[str]) -> str:
    """Lines that stand beside the rows of the grid."""
    style = f"grid-auto-rows:{height}px;gap:{gap}px;line-height:{height}px"
    return (
        f'<div class="msnb msnb-rows" style="{html.escape(style)}" aria-hidden="true">{"".join(lines)}</div>'
    )


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}–{last}"
