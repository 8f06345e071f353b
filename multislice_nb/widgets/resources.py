"""The tab of queued resources: a live table, one chosen, and what can be done with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from multislice_nb.widgets.fields import Choice, button, row
from multislice_nb.widgets.question import Question
from multislice_nb.widgets.tables import nodes_html, resources_html

if TYPE_CHECKING:
    from collections.abc import Callable

    from multislice_nb.cloud import QueuedResourceStatus
    from multislice_nb.widgets.create_form import CreateForm
    from multislice_nb.widgets.outcome import Desk
    from multislice_nb.widgets.session import Session
    from multislice_nb.widgets.snapshot import Snapshot

__all__ = ["Resources"]


class Resources:
    """Table, choice and buttons. `show` draws a snapshot.

    Args:
        session: Whose queued resources.
        desk: Takes the work.
    """

    def __init__(self, session: Session, desk: Desk) -> None:
        self._session = session
        self._desk = desk
        self._snapshot: Snapshot | None = None
        self._busy: set[str] = set()
        self._wanted = ""
        self.form: CreateForm | None = None
        self._place = widgets.VBox()
        self.new = button("New…", "plus", "Ask for slices")
        self._table = widgets.HTML()
        self._detail = widgets.HTML()
        self.choice = Choice(description="Selected", options=[], tooltip="Queued resource")
        self.attach = button("Attach", "link", "Attach to all its workers", "primary")
        self.reset = button("Reset", "refresh", "Restart all its workers; variables are lost")
        self.delete = button("Delete…", "trash", "Delete it with its slices; asks first")
        self.question = Question("trash", "Keep", ("Delete it now", "Do not delete it"), self._delete)
        self._some = widgets.HBox([self.choice, self.attach, self.reset, self.delete], layout=row())
        bar = widgets.HBox([self.new, self._some], layout=row())
        self.view = widgets.VBox([self._table, bar, self.question.view, self._place, self._detail])
        self.new.on_click(lambda _: self._toggle_form())
        self.choice.observe(self._chosen, "value")
        self.attach.on_click(lambda _: self._attach())
        self.reset.on_click(lambda _: self._reset())
        self.delete.on_click(lambda _: self._ask())

    def show(self, snapshot: Snapshot) -> None:
        """Draw what there is now; only what changed is sent."""
        self._snapshot = snapshot
        names = [status.name for status in snapshot.queued_resources]
        before = self.choice.value
        self.choice.offer(names)
        if self._wanted in names:
            self.choice.value, self._wanted = self._wanted, ""
        if before != self.choice.value:
            self.question.hide()
        self.new.disabled = self._session.cloud is None
        self._draw()

    def _toggle_form(self) -> None:
        from multislice_nb.widgets.create_form import CreateForm

        if self.form is None:
            self.form = CreateForm(self._session, self._desk, self._created)
            self._place.children = [self.form.view]
        self.form.toggle()

    def _created(self, name: str) -> None:
        self._wanted = name

    def _chosen(self, _: Any) -> None:
        self.question.hide()
        self._draw()

    def _draw(self) -> None:
        snapshot, name = self._snapshot, self.choice.value
        if snapshot is None:
            return
        status = snapshot.status(name) if name else None
        self._table.value = resources_html(snapshot, name)
        self._some.layout.display = None if status else "none"
        self._detail.value = (
            nodes_html(snapshot.nodes.get(status.name, ()), snapshot.timelines.get(status.name, ()))
            if status
            else ""
        )
        free = status is not None and status.name not in self._busy
        active = free and status is not None and status.is_active
        self.attach.disabled = self.reset.disabled = not active
        self.delete.disabled = not free or (status is not None and status.state == "DELETING")
        self.question.allow(not self.delete.disabled)

    def _status(self) -> QueuedResourceStatus | None:
        return self._snapshot.status(self.choice.value) if self._snapshot and self.choice.value else None

    def _start(self, name: str, doing: str, work: Any, **options: Any) -> None:
        self._busy.add(name)
        self._draw()

        def free() -> None:
            self._busy.discard(name)
            self._draw()

        self._desk.start(doing, work, after=free, **options)

    def _attach(self) -> None:
        from multislice_nb.cluster.attaching import aattach

        status = self._status()
        cloud = self._session.cloud
        if status is None or cloud is None:
            return
        name, zone = status.name, status.zone

        async def work(report: Callable[[str], None]) -> Any:
            return await aattach(await cloud.aget(name, zone), report=report)

        self._start(
            name,
            f"Attaching to {name}",
            work,
            done=lambda cluster: f"{name}: {cluster}",
            then=self._session.use,
            magic=f"%multislice attach {name}",
        )

    def _reset(self) -> None:
        status, cloud = self._status(), self._session.cloud
        if status is None or cloud is None:
            return
        name, zone = status.name, status.zone

        async def work(_: Callable[[str], None]) -> None:
            await (await cloud.aget(name, zone)).areset()

        self._start(
            name,
            f"Resetting {name}",
            work,
            done=f"{name} was reset; attach again to run cells.",
            magic=f"%multislice reset {name}",
        )

    def _ask(self) -> None:
        status = self._status()
        if status is None:
            return
        self.question.ask(self._what_dies(status), f"Delete {status.name}")

    def _what_dies(self, status: QueuedResourceStatus) -> str:
        slices = f"{status.node_count} slice{'s' if status.node_count > 1 else ''}"
        parts = [slices, *([f"{status.workers} workers", f"{status.chips} chips"] if status.chips else [])]
        cluster = self._snapshot.cluster(status.name) if self._snapshot else None
        lost = " You are attached: variables on its workers are lost." if cluster else ""
        return f"Delete {status.name} ({', '.join(parts)}) and everything that runs on it?{lost}"

    def _delete(self) -> None:
        status, cloud = self._status(), self._session.cloud
        self.question.hide()
        if status is None or cloud is None:
            return
        name, zone, session = status.name, status.zone, self._session

        async def work(_: Callable[[str], None]) -> None:
            found = await cloud.aget(name, zone)
            await found.adelete(taken=lambda: session.let_go(found))

        released = f" · {status.workers} workers, {status.chips} chips released" if status.chips else ""
        self._start(
            name,
            f"Deleting {name}",
            work,
            done=f"{name} deleted{released}",
            magic=f"%multislice delete {name}",
        )
