"""The widget of the control panel: a head, tabs, and what became of what was done."""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING, Any, ClassVar

import ipywidgets as widgets

from multislice_nb.widgets.loop import KernelLoop
from multislice_nb.widgets.outcome import Desk
from multislice_nb.widgets.poller import poller_of
from multislice_nb.widgets.pulse import Pulse
from multislice_nb.widgets.resources import Resources
from multislice_nb.widgets.style import CSS
from multislice_nb.widgets.tables import head_html

if TYPE_CHECKING:
    from collections.abc import Callable

    from multislice_nb.cloud import Cloud
    from multislice_nb.widgets.session import Session
    from multislice_nb.widgets.snapshot import Snapshot

__all__ = ["Board"]

_KEPT_WIDTH = 720
"""Pixels of a chart that is kept; it is drawn twice as fine."""


class _Page(widgets.VBox):  # type: ignore[misc]  # ipywidgets ships no types
    """A box that knows how many views there are of it, also on a page that is loaded again.

    Such a page asks for the whole state and then counts its own views; those of the page before it are gone.
    """

    loaded: Callable[[], None] | None = None
    """Called when a page asks for the whole state."""

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> Any:
        """What a front end is told."""
        state = super().get_state(key, drop_defaults)
        if key is None and state.get("_view_count") is not None:
            state["_view_count"] = 0
            if self.loaded is not None:
                self.loaded()
        return state


class Board:
    """Everything that is on the page.

    Args:
        session: What it shows.
    """

    _LATER: ClassVar = {
        "Workers": "multislice_nb.widgets.workers",
        "Run": "multislice_nb.widgets.runner",
        "Plan": "multislice_nb.widgets.planner",
        "Sweep": "multislice_nb.widgets.explorer",
        "Jobs": "multislice_nb.widgets.jobs_tab",
    }
    """Tabs that are made when they are first opened, so that opening the panel takes no time, and their modules."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._poller = poller_of(session)
        self.below: Any = None
        self.loop = KernelLoop()
        self.pulse = Pulse(self.loop, self._subscribe)
        self.desk = Desk(self.loop, self._poller.hurry)
        self.head = widgets.HTML()
        self.connect = widgets.Button(
            description="Connect",
            icon="plug",
            button_style="primary",
            layout=widgets.Layout(display="none", width="auto"),
        )
        self.connect.tooltip = "Connect to the configured project, or to the emulator on this machine"
        self.connect.on_click(lambda _: self._connect())
        self.resources = Resources(session, self.desk)
        plain = widgets.Layout()
        self.tabs = widgets.Tab(
            children=[self.resources.view, *(widgets.VBox(layout=plain) for _ in self._LATER)],
            titles=["Queued resources", *self._LATER],
        )
        self.tabs.observe(self._opened, "selected_index")
        self.later: dict[str, Any] = {}
        self.view = _Page(
            [
                widgets.HTML(CSS, layout=widgets.Layout(display="none")),
                self.head,
                self.connect,
                self.tabs,
                self.desk.view,
                self.pulse.view,
            ],
            layout=widgets.Layout(max_width="1100px"),
        )
        self.view.add_class("msnb-board")
        # From 0 on the front end counts the views: the poller works for those that are shown.
        self.view._view_count = 0  # noqa: SLF001 - ipywidgets' own name for what is public there
        self.view.loaded = self.pulse.seen
        self.view.observe(self._shown, "_view_count")
        self.show(self._poller.last)

    @property
    def _title(self) -> str:
        """Of the tab that is open."""
        return str(self.tabs.titles[self.tabs.selected_index or 0])

    def show(self, snapshot: Snapshot | None) -> None:
        """Draw a snapshot."""
        self.head.value = head_html(snapshot)
        connected = self._session.cloud is not None
        self.connect.layout.display = "none" if connected else None
        if snapshot is not None:
            self.resources.show(snapshot)
            self._show_later(snapshot)

    def _opened(self, _: Any) -> None:
        """Make a tab when it is first opened; what it imports is imported in a thread meanwhile."""
        self.pulse.seen()
        self._watch()
        title = self._title
        if title not in self._LATER or title in self.later:
            self.show(self._poller.last)
            return
        self.later[title] = None

        async def work(_: Callable[[str], None]) -> Any:
            return await asyncio.to_thread(importlib.import_module, self._LATER[title])

        self.desk.quietly(work, then=lambda module: self._make(title, module))

    def _make(self, title: str, module: Any) -> None:
        if title == "Workers":
            made = module.Workers(self._session, self.loop)
        elif title == "Run":
            made = module.Runner(self._session, self.desk, self.loop)
        elif title == "Plan":
            made = module.Planner()
        elif title == "Jobs":
            made = module.JobsTab(self._session, self.desk)
        else:
            made = module.Explorer(self._session, self.desk, self._keep)
        self.later[title] = made
        place = self.tabs.children[list(self.tabs.titles).index(title)]
        place.children = [made.view]
        self._watch()
        self.show(self._poller.last)

    def _show_later(self, snapshot: Snapshot) -> None:
        """Draw the tab that is open; the others when they are opened."""
        shown = self.later.get(self._title)
        if self._title in {"Workers", "Run", "Jobs"} and shown is not None:
            shown.show(snapshot)

    def _keep(self, png: bytes) -> bool:
        if self.below is None:
            return False
        size = {"image/png": {"width": _KEPT_WIDTH}}
        self.below.update({"image/png": png, "text/plain": "<chart>"}, raw=True, metadata=size)
        return True

    def mimebundle(self) -> dict[str, Any]:
        """What IPython displays."""
        found = self.view._repr_mimebundle_()
        return {key: value for key, value in found.items() if key.startswith("application/")}

    def close(self) -> None:
        """Take it off the page."""
        self.pulse.stop()
        self._poller.unsubscribe(self)
        self._watch(closed=True)
        self.view.close()

    def _shown(self, change: Any) -> None:
        if change["new"]:
            self.pulse.start()
        else:
            self.pulse.stop()
        self._subscribe()

    def _subscribe(self) -> None:
        """Have the poller work for this panel while somebody sees it."""
        if self._seen:
            self._poller.subscribe(self, self.loop, self.show)
        else:
            self._poller.unsubscribe(self)
        self._watch()

    @property
    def _seen(self) -> bool:
        return bool(self.view._view_count) and self.pulse.there  # noqa: SLF001 - as above

    def _watch(self, *, closed: bool = False) -> None:
        """Have the workers asked how much of them is used only while their tab is seen."""
        workers = self.later.get("Workers")
        if workers is not None:
            workers.open(shown=not closed and self._seen and self._title == "Workers")

    def _connect(self) -> None:
        session = self._session

        async def work(_: Callable[[str], None]) -> Cloud:
            return await asyncio.to_thread(session.connect)

        self.connect.disabled = True
        self.desk.start(
            "Connecting",
            work,
            done=lambda cloud: str(cloud).splitlines()[0],
            magic="%multislice connect",
            after=self._connected,
        )

    def _connected(self) -> None:
        self.connect.disabled = False
        self.show(self._poller.last)
