"""The tab that explores a sweep: a results file, two axes, colours, a filter, two files side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from multislice_nb.widgets.fields import Choice, button, row
from multislice_nb.widgets.painter import Painter

if TYPE_CHECKING:
    from collections.abc import Callable

    from multislice_nb.widgets.outcome import Desk
    from multislice_nb.widgets.session import Session

__all__ = ["Explorer"]

_HORIZONTAL = ("batch_per_device", "tokens_per_slice", "embedding", "layers", "parameters")
_VERTICAL = ("tflops_per_chip", "step_seconds", "operational_intensity", "compile_seconds", "spread")
_COLOURS = ("strategy", "embedding", "layers", "slices", "status")
_NONE = "-"


class Explorer:
    """Choices and a chart.

    Args:
        session: Its last sweep is offered first.
        desk: Says what went wrong.
        keep: Puts a chart into the notebook as static output; says whether it could.
        folder: Where results files are looked for.
    """

    def __init__(
        self, session: Session, desk: Desk, keep: Callable[[bytes], bool], folder: Path | None = None
    ) -> None:
        self._session = session
        self._desk = desk
        self._keep = keep
        self._folder = folder or Path()
        self._painter = Painter()
        self._wanted = 0
        self._looking = False
        self._png = b""
        narrow = {"layout": widgets.Layout(width="260px"), "style": {"description_width": "70px"}}
        wide = {"layout": widgets.Layout(width="420px"), "style": {"description_width": "70px"}}
        self.file = Choice(description="Results", options=[_NONE], **wide)
        self.other = Choice(description="Compare", options=[_NONE], **wide)
        self.x = widgets.Dropdown(description="Across", options=list(_HORIZONTAL), **narrow)
        self.y = widgets.Dropdown(description="Up", options=list(_VERTICAL), **narrow)
        self.colour = widgets.Dropdown(description="Lines", options=list(_COLOURS), **narrow)
        self.theme = widgets.Dropdown(description="Paper", options=["light", "dark"], **narrow)
        self.only = widgets.SelectMultiple(
            description="Only",
            options=[],
            rows=4,
            layout=widgets.Layout(width="260px"),
            style={"description_width": "70px"},
        )
        self.refresh = button("Look again", "refresh", "Look for results files and read them again")
        self.keep = button("Keep chart", "download", "Put the chart below the panel, as output that is saved")
        self._chart = widgets.Image(
            format="png", layout=widgets.Layout(display="none", width="100%", max_width="620px")
        )
        self._note = widgets.HTML()
        left = widgets.VBox([self.x, self.y, self.colour, self.only, self.theme])
        self.view = widgets.VBox(
            [
                widgets.HBox([self.file, self.refresh], layout=row()),
                widgets.HBox([self.other, self.keep], layout=row()),
                widgets.HBox(
                    [
                        left,
                        widgets.VBox(
                            [self._chart, self._note], layout=widgets.Layout(flex="1 1 420px", min_width="0")
                        ),
                    ],
                    layout=widgets.Layout(flex_flow="row wrap", grid_gap="6px 12px"),
                ),
            ]
        )
        for choice in (self.file, self.other, self.x, self.y, self.colour, self.theme, self.only):
            choice.observe(self._changed, "value")
        self.refresh.on_click(lambda _: self.look())
        self.keep.on_click(lambda _: self._keep_chart())
        self.keep.disabled = True
        self.look()

    def look(self) -> None:
        """Find results files, and draw again."""
        found = sorted(
            {*self._folder.glob("*.jsonl"), *self._folder.glob("*/*.jsonl")},
            key=lambda path: path.stat().st_mtime,
            reverse=True,
        )
        last = self._session.results
        paths = [*([str(last.path)] if last is not None else []), *map(str, found)]
        names = list(dict.fromkeys(paths))
        self._looking = True
        self.file.offer(names or [_NONE])
        self.other.offer([_NONE, *names])
        self._looking = False
        self._changed()

    def _changed(self, change: Any = None) -> None:
        if self._looking:
            return
        if self.file.value in {None, _NONE}:
            self._note.value = (
                '<div class="msnb msnb-empty">No results file here. Measure with '
                '<code class="msnb-code">%multislice sweep --strategies fsdp,tensor --batch-sizes 64,128</code></div>'
            )
            return
        if change is not None and change["owner"] in {self.file, self.colour}:
            self._choose_only(())  # groups of another column, or of another file
        self._wanted += 1
        asked = self._wanted
        files = [Path(name) for name in (self.file.value, self.other.value) if name != _NONE]
        choices = {
            "x": self.x.value,
            "y": self.y.value,
            "colour": self.colour.value,
            "theme": self.theme.value,
        }
        only = list(self.only.value)

        async def work(_: Callable[[str], None]) -> tuple[list[str], bytes]:
            return await self._painter.draw(files, only=only, **choices)

        def show(answer: tuple[list[str], bytes]) -> None:
            if asked == self._wanted:
                self._show(*answer)

        self._desk.quietly(work, then=show)

    def _show(self, groups: list[str], png: bytes) -> None:
        if list(self.only.options) != groups:
            chosen = tuple(name for name in self.only.value if name in groups)
            self._choose_only(chosen, groups)
        self._png = png
        self._chart.value = png
        self._chart.layout.display = None
        self.keep.disabled = False
        self._note.value = ""

    def _choose_only(self, chosen: tuple[str, ...], groups: list[str] | None = None) -> None:
        """Choose groups, of others where there are, without drawing for that alone."""
        self._looking = True
        if groups is not None:
            self.only.options = groups
        self.only.value = chosen
        self._looking = False

    def _keep_chart(self) -> None:
        magic = f"%multislice plot tflops {self.file.value}"
        if self._keep(self._png):
            self._desk.note("The chart was put below the panel.", magic=magic)
        else:
            self._desk.note("There is no place for it here: draw it in a cell.", tone="warning", magic=magic)
