"""What each subcommand calls. A method is a subcommand, its keywords are the table's argument names."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from multislice_nb._portal import sync
from multislice_nb._texts import lasted
from multislice_nb.cloud.display import counted
from multislice_nb.errors import CloudError, MagicError
from multislice_nb.magics import ahead
from multislice_nb.magics.actions_create import CreateActions
from multislice_nb.magics.actions_environment import EnvironmentActions
from multislice_nb.magics.actions_experiments import ExperimentActions
from multislice_nb.magics.actions_jobs import JobActions
from multislice_nb.magics.actions_planning import PlanningActions
from multislice_nb.magics.actions_slices import SliceActions
from multislice_nb.magics.actions_workers import WorkerActions
from multislice_nb.magics.views import Description, Note, Status, Timeline

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from multislice_nb.cloud import Cloud, QueuedResource, QueuedResources, Reclaimable, Report

__all__ = ["Actions"]

_HOLDING = {"PROVISIONING", "ACTIVE"}
"""States that come only once there is capacity."""


class Actions(
    CreateActions,
    SliceActions,
    WorkerActions,
    EnvironmentActions,
    PlanningActions,
    ExperimentActions,
    JobActions,
):
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
        if self._line().watched:
            ahead.read()
        cloud = self.session.connect(project, zone, endpoint=endpoint, emulator=wanted)
        for notice in cloud.notices:
            print(f"Note: {notice}")
        return cloud

    def doctor(self, accelerator_type: str | None = None, runtime_version: str | None = None) -> Report:
        """`doctor`."""
        from multislice_nb.cloud.doctor import diagnose

        line = self._line()
        report = diagnose(
            self.session.connected(),
            accelerator_type,
            runtime_version,
            progress=lambda check: line.show(f"Checking … {check.name}"),
        )
        line.end()
        return report

    def list(self, zone: str | None = None) -> QueuedResources:
        """`list`."""
        return self.session.list(zone)

    def describe(self, name: str, zone: str | None = None) -> Description:
        """`describe`."""
        found = self.session.get(name, zone)
        return Description(found, found.nodes(), found.timeline())

    def timeline(self, name: str, zone: str | None = None) -> Timeline:
        """`timeline`."""
        found = self.session.get(name, zone)
        return Timeline(name, found.timeline(), found.usage)

    def wait(self, name: str, zone: str | None = None, **limits: Any) -> QueuedResource:
        """`wait`."""
        return self._awaited(self.session.get(name, zone), **limits)

    def status(self) -> Status:
        """`status`."""
        cloud = self.session.cloud
        listed = self.session.list() if cloud else None
        return Status(cloud, listed, self.session.clusters(), self.session.elsewhere())

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

        async def delete(one: QueuedResource) -> None:
            await one.adelete(force=not no_force, wait=not no_wait, taken=lambda: self.session.let_go(one))

        async def delete_all(_: Callable[[str], None]) -> list[BaseException | None]:
            return await asyncio.gather(*map(delete, found), return_exceptions=True)

        outcomes = self._follow(f"Deleting {', '.join(one.name for one in found)}", delete_all)
        failed = [outcome for outcome in outcomes if outcome is not None]
        done = [one for one, outcome in zip(found, outcomes, strict=True) if outcome is None]
        self.session.forget(one.name for one in done)
        told = "\n".join(_farewell(one, waited=not no_wait) for one in done)
        if failed:
            if told:
                print(told)
            raise CloudError.of_several("could not be deleted", failed)
        return Note(told)

    def recreate(self, name: str, zone: str | None = None, *, wait: bool = False) -> QueuedResource:
        """`recreate`."""
        queued_resource = self.session.get(name, zone)
        self._follow(
            f"Recreating {name}",
            lambda _: queued_resource.arecreate(taken=lambda: self.session.let_go(queued_resource)),
        )
        return self._awaited(queued_resource) if wait else queued_resource

    def reclaim(self, names: Sequence[str] = (), zone: str = "-", *, yes: bool = False) -> Reclaimable | Note:
        """`reclaim`."""
        found = self.session.connected().reclaim(zone)
        unknown = sorted(set(names) - set(found.names))
        if unknown:
            raise MagicError(
                f"{unknown[0]} is not among what can be reclaimed.",
                fix=f"It is {', '.join(found.names) or 'nothing'}; delete others with %multislice delete.",
            )
        if not yes:
            return found
        gone = found.sweep(names or None)
        for finding in found.findings:
            if finding.name in gone:
                sync(self.session.let_go, finding.status)
        self.session.forget(gone)
        return Note(f"Deleted: {', '.join(gone)}." if gone else "Nothing was deleted.")

    def panel(self) -> Any:
        """`panel`."""
        from multislice_nb.widgets import panel

        return panel(self.session)

    def emulator(self, action: str, parameters: tuple[str, ...] = (), *, clear: bool = False) -> Note:
        """`emulator`."""
        from multislice_nb.cloud.emulation import control, misfortune

        if action == "fault":
            return Note(misfortune(*parameters, clear=clear))
        if parameters or clear:
            raise MagicError(
                f"emulator {action} takes nothing more.",
                fix="Leave the rest out; see %multislice emulator --help.",
            )
        return Note(control(action))


def _farewell(one: QueuedResource, *, waited: bool) -> str:
    status, timeline = one.status, one.timeline()
    released = (
        f" · {counted(status.workers, 'worker')}, {counted(status.chips, 'chip')} released"
        if waited and status.chips and any(change.state in _HOLDING for change in timeline)
        else ""
    )
    verb = "deleted" if waited else "is being deleted"
    started = next((change.at for change in timeline if change.state == "ACTIVE"), None)
    ended = timeline[-1].at if started else None
    ran = f" · ran {lasted((ended - started).total_seconds())}" if started and ended else ""
    return f"{one.name} {verb}{released}{ran}"
