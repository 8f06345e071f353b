"""What each subcommand calls. A method is a subcommand, its keywords are the table's argument names."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multislice_nb.errors import MagicError
from multislice_nb.magics.following import Look, follow
from multislice_nb.magics.views import Description, Note, Status, lasted, timeline_text
from multislice_nb.widgets.session import current

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from multislice_nb.cloud import Cloud, QueuedResource, QueuedResources, QueuedResourceStatus
    from multislice_nb.cluster import Cluster
    from multislice_nb.experiments import Results, SweepProgress
    from multislice_nb.magics.live import Line
    from multislice_nb.plotting import Chart

__all__ = ["Actions"]


class Actions:
    """The subcommands.

    Args:
        line: Makes the output that a long call updates.
        variables: The user's namespace, for results by name.
    """

    def __init__(self, line: Callable[[], Line], variables: Mapping[str, Any]) -> None:
        self.session = current()
        self._line = line
        self._variables = variables

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
            request = cloud.request(
                name, **{key: fields[key] for key in fields if key not in {"ttl", "idle_limit"}}
            )
            return Note(f"{request}\n{request.to_gcloud()}")
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

    def attach(self, name: str, zone: str | None = None, deadline: float | None = None) -> Cluster:
        """`attach`."""
        from multislice_nb.cluster.attaching import aattach

        queued_resource = self.session.get(name, zone)
        limits = {} if deadline is None else {"deadline": deadline}
        line = self._line()
        seconds = [0.0]

        def show(look: Look[Cluster]) -> None:
            seconds[:] = [look.seconds]
            step = look.step or f"Attaching to {name}"
            line.show(f"{step} · {lasted(look.seconds)}", step=step)

        cluster = follow(lambda report: aattach(queued_resource, report=report, **limits), show)
        line.end(f"Attached in {lasted(seconds[0])}")
        self.session.use(cluster)
        return cluster

    def status(self) -> Status:
        """`status`."""
        cloud = self.session.cloud
        return Status(cloud, self.session.list() if cloud else None, self.session.clusters())

    def use(self, name: str) -> Cluster:
        """`use`."""
        cluster = self.session.cluster(name)
        self.session.use(cluster)
        return cluster

    def sweep(
        self,
        *,
        strategies: Sequence[str],
        batch_sizes: Sequence[int],
        cluster: str | None = None,
        **options: Any,
    ) -> Results:
        """`sweep`."""
        from multislice_nb.experiments import sweep

        line = self._line()

        def progress(look: SweepProgress) -> None:
            line.show(str(look), step=str(look) if look.last else None)

        gang = self.session.cluster(cluster)
        self.session.results = sweep(strategies, batch_sizes, cluster=gang, progress=progress, **options)
        line.end(f"{len(self.session.results)} measurements in {self.session.results.path}")
        return self.session.results

    def plot(
        self,
        figure: str,
        results: str | None = None,
        *,
        generation: tuple[str, ...] | None = None,
        slices: tuple[int, ...] | None = None,
        exact: bool = False,
        theme: str = "light",
    ) -> Chart:
        """`plot`."""
        from multislice_nb import plotting

        if figure == "tflops":
            return self._results(results).plot_tflops(theme=theme)  # type: ignore[return-value]
        options: dict[str, Any] = {"theme": theme, "exact": exact}
        if slices:
            options["slices"] = slices
        if results is not None:
            return self._results(results).plot_intensity(generation=generation, **options)  # type: ignore[return-value]
        return plotting.plot_intensity(generation or "v4", **options)

    def _results(self, name: str | None) -> Results:
        from multislice_nb.experiments import Results

        if name is None:
            if self.session.results is None:
                raise MagicError(
                    "There was no sweep in this notebook.",
                    fix="Name a variable with results, or a results file.",
                )
            return self.session.results
        found = self._variables.get(name)
        if isinstance(found, Results):
            return found
        if found is not None and not Path(name).exists():
            raise MagicError(
                f"{name} is a {type(found).__name__}, not results of a sweep.",
                fix="Give what ms.sweep returned.",
            )
        return Results.load(name)

    def reset(self, name: str, zone: str | None = None) -> QueuedResource:
        """`reset`."""
        queued_resource = self.session.get(name, zone)
        self._follow(f"Resetting {name}", lambda _: queued_resource.areset())
        return queued_resource

    def restart(self, name: str | None = None) -> Cluster:
        """`restart`."""
        cluster = self.session.cluster(name)
        self._follow(f"Starting a new gang on {cluster.name}", lambda _: cluster.arestart())
        return cluster

    def interrupt(self, name: str | None = None) -> Note:
        """`interrupt`."""
        cluster = self.session.cluster(name)
        cluster.interrupt()
        return Note(f"Interrupted {len(cluster.alive)} workers of {cluster.name}.")

    def detach(self, name: str | None = None, *, shutdown: bool = False) -> Note:
        """`detach`."""
        cluster = self.session.cluster(name)
        if shutdown:
            cluster.shutdown()
            return Note(
                f"{cluster.name}: the engines on {len(cluster.workers)} workers were ended; the slices stay."
            )
        cluster.detach()
        return Note(
            f"{cluster.name} is detached; its engines and their variables stay. "
            f"Again: %multislice attach {cluster.name}"
        )

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

    def _follow(self, doing: str, start: Callable[[Callable[[str], None]], Any]) -> None:
        line = self._line()

        def show(look: Look[None]) -> None:
            line.show(f"{doing} · {lasted(look.seconds)}", step=doing)

        follow(start, show)
        line.end()


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
