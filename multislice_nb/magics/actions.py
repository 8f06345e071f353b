"""What each subcommand calls. A method is a subcommand, its keywords are the table's argument names."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multislice_nb.errors import MagicError
from multislice_nb.magics.actions_jobs import JobActions
from multislice_nb.magics.actions_planning import PlanningActions
from multislice_nb.magics.actions_workers import WorkerActions
from multislice_nb.magics.views import Description, Note, Status, lasted, timeline_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from multislice_nb.cloud import Cloud, QueuedResource, QueuedResources, QueuedResourceStatus

__all__ = ["Actions"]


_OURS = {"ttl", "idle_limit", "zones", "capacities", "capacity_timeout", "recreate"}
"""Flags of create that are not the request's own."""


class Actions(WorkerActions, PlanningActions, JobActions):
    """All subcommands; those about slices are here."""

    def connect(
        self,
        project: str | None = None,
        zone: str | None = None,
        endpoint: str | None = None,
        *,
        emulator: bool = False,
        no_emulator: bool = False,
    ) -> Cloud:
        """`connect`."""
        wanted = True if emulator else (False if no_emulator else None)
        return self.session.connect(project, zone, endpoint=endpoint, emulator=wanted)

    def create(
        self,
        name: str,
        *,
        project: str | None = None,
        wait: bool = False,
        no_wait: bool = False,  # noqa: ARG002 - gcloud's --async says what happens anyway
        dry_run: bool = False,
        in_order: bool = False,
        **fields: Any,
    ) -> QueuedResource | Note:
        """`create`."""
        cloud = self.session.connected(project)
        if "startup_script" in fields:
            fields["startup_script"] = Path(fields["startup_script"])
        files = fields.pop("metadata_from_file", {})
        if files:
            texts = {key: _text_of(key, file) for key, file in files.items()}
            fields["metadata"] = {**fields.get("metadata", {}), **texts}
        if dry_run:
            request = cloud.request(name, **{key: fields[key] for key in fields if key not in _OURS})
            return Note(f"{request}\n{request.to_gcloud()}")
        if in_order:
            fields["race"] = False
        made = cloud.create(name, **fields)
        self.session.know(name)
        return self._awaited(made) if wait else made

    def list(self, zone: str | None = None) -> QueuedResources:
        """`list`."""
        return self.session.list(zone)

    def describe(self, name: str, zone: str | None = None) -> Description:
        """`describe`."""
        found = self.session.get(name, zone)
        return Description(found, found.nodes(), found.timeline())

    def wait(self, name: str, zone: str | None = None, **limits: Any) -> QueuedResource:
        """`wait`."""
        return self._awaited(self.session.get(name, zone), **limits)

    def _awaited(self, queued_resource: QueuedResource, **limits: Any) -> QueuedResource:
        line = self._line()

        def progress(status: QueuedResourceStatus) -> None:
            line.show(_path(queued_resource, status), step=f"{status.name} {status.state}")

        try:
            queued_resource.wait(progress=progress, **limits)
        finally:
            line.end(timeline_text(queued_resource.timeline()) if line.watched else "")
        return queued_resource

    def status(self) -> Status:
        """`status`."""
        cloud = self.session.cloud
        return Status(cloud, self.session.list() if cloud else None, self.session.clusters())

    def reset(self, name: str, zone: str | None = None) -> QueuedResource:
        """`reset`."""
        queued_resource = self.session.get(name, zone)
        self._follow(f"Resetting {name}", lambda _: queued_resource.areset())
        return queued_resource

    def delete(
        self,
        names: Sequence[str],
        zone: str | None = None,
        *,
        force: bool = True,  # noqa: ARG002 - gcloud's --force says what happens anyway
        no_force: bool = False,
        no_wait: bool = False,
        quiet: bool = False,  # noqa: ARG002 - nothing is asked here
    ) -> Note:
        """`delete`."""
        found = [self.session.get(name, zone) for name in dict.fromkeys(names)]
        self._let_go(found)

        async def delete_all(_: Callable[[str], None]) -> None:
            await asyncio.gather(*(one.adelete(force=not no_force, wait=not no_wait) for one in found))

        self._follow(f"Deleting {', '.join(one.name for one in found)}", delete_all)
        self.session.forget(one.name for one in found)
        return Note("\n".join(_farewell(one, waited=not no_wait) for one in found))

    def recreate(self, name: str, zone: str | None = None) -> QueuedResource:
        """`recreate`."""
        queued_resource = self.session.get(name, zone)
        self._let_go([queued_resource])
        self._follow(f"Recreating {name}", lambda _: queued_resource.arecreate())
        return queued_resource

    def reclaim(self, zone: str = "-", *, delete: Sequence[str] = ()) -> Any:
        """`reclaim`."""
        found = self.session.connected().reclaim(zone)
        if not delete:
            return found
        gone = found.sweep(None if tuple(delete) == ("all",) else delete)
        self.session.forget(gone)
        return Note(f"Deleted: {', '.join(gone)}" if gone else "Nothing was deleted.")

    def _let_go(self, found: Sequence[QueuedResource]) -> None:
        """Detach from what is about to be deleted, since its engines end with it."""
        attached = {cluster.name: cluster for cluster in self.session.clusters()}
        for one in found:
            if one.name in attached and attached[one.name].queued_resource.zone == one.zone:
                attached[one.name].detach()

    def panel(self) -> Any:
        """`panel`."""
        from multislice_nb.widgets import panel

        return panel(self.session)

    def emulator(self, action: str) -> Note:
        """`emulator`."""
        from multislice_nb.cloud.emulation import control

        return Note(control(action))


def _path(queued_resource: QueuedResource, status: QueuedResourceStatus) -> str:
    """The timeline, and how long it has been where it is."""
    seconds = status.time_in_state()
    since = f" {lasted(seconds)}" if seconds is not None and not status.is_active else ""
    return f"{timeline_text(queued_resource.timeline())}{since}"


def _farewell(one: QueuedResource, *, waited: bool) -> str:
    status = one.status
    released = (
        f" · {status.workers} workers, {status.chips} chips released" if waited and status.chips else ""
    )
    verb = "deleted" if waited else "is being deleted"
    started = next((change.at for change in one.timeline() if change.state == "ACTIVE"), None)
    ended = one.timeline()[-1].at if started else None
    ran = f" · ran {lasted((ended - started).total_seconds())}" if started and ended else ""
    return f"{one.name} {verb}{released}{ran}"


def _text_of(key: str, file: str) -> str:
    try:
        return Path(file).expanduser().read_text(encoding="utf-8")
    except OSError as error:
        raise MagicError(
            f"The file {file} for the metadata {key} cannot be read: {error.strerror}.",
            fix="Give a file's path.",
        ) from error
