"""The subcommands about attached workers: attach, and the life of a gang."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from multislice_nb._texts import lasted
from multislice_nb.cloud.display import counted
from multislice_nb.errors import MagicError
from multislice_nb.magics.base import Base
from multislice_nb.magics.following import Look, follow
from multislice_nb.magics.mistakes import closest
from multislice_nb.magics.views import Note

if TYPE_CHECKING:
    from collections.abc import Sequence

    from multislice_nb.cluster import Cluster

__all__ = ["WorkerActions"]


class WorkerActions(Base):
    """Each method is a subcommand."""

    def attach(
        self,
        name: str,
        zone: str | None = None,
        *,
        deadline: float | None = None,
        recover: bool = False,
        repair_deadline: float | None = None,
        **patience: Any,
    ) -> Cluster:
        """`attach`."""
        from multislice_nb.cluster.attaching import aattach
        from multislice_nb.cluster.formation import START_DEADLINE
        from multislice_nb.cluster.settings import GangSettings

        if repair_deadline is not None and not recover:
            raise MagicError(
                "--repair-deadline says how long --recover waits.", fix=f"%multislice attach {name} --recover"
            )
        settings = GangSettings.configured(**patience)
        queued_resource = self.session.get(name, zone)
        line = self._line()
        seconds = [0.0]

        def show(look: Look[Cluster]) -> None:
            seconds[:] = [look.seconds]
            step = look.step or f"Attaching to {name}"
            line.show(f"{step} · {lasted(look.seconds)}", step=step)

        cluster = follow(
            lambda report: aattach(
                queued_resource,
                deadline=START_DEADLINE if deadline is None else deadline,
                recover=recover,
                repair_deadline=repair_deadline,
                settings=settings,
                report=report,
            ),
            show,
        )
        line.end(f"Attached in {lasted(seconds[0])}")
        if cluster.left is not None:
            print(f"{cluster.left.name} ran here while nobody was attached: %multislice collect shows it.")
        self.session.use(cluster)
        return cluster

    def use(self, name: str) -> Cluster:
        """`use`."""
        cluster = self.session.cluster(name)
        self.session.use(cluster)
        return cluster

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

    def collect(self, name: str | None = None, *, output: str | None = None) -> None:
        """`collect`."""
        cluster, line = self.session.cluster(name), self._line()
        result = cluster.collect(
            check=False, on_update=lambda look: line.show(str(look)) if output is None else None
        )
        self._finish(result, line, output)

    def define(self, names: Sequence[str], *, cluster: str | None = None) -> Note:
        """`define`."""
        unknown = [name for name in names if name not in self._variables]
        if unknown:
            near = closest(unknown[0], (name for name in self._variables if not name.startswith("_")))
            raise MagicError(
                f"{unknown[0]} is not defined in this notebook.",
                fix=f"Did you mean {near}?"
                if near
                else "Define it here first, in a cell without %%multislice.",
            )
        chosen = self.session.cluster(cluster)
        chosen.define(**{name: self._variables[name] for name in names})
        verb = "is" if len(names) == 1 else "are"
        return Note(f"{', '.join(names)} {verb} defined on {counted(len(chosen.workers), 'worker')}.")

    def autocell(self, state: str) -> Note:
        """`autocell`."""
        if self._autocell is None:
            raise MagicError("There are no cells here.", fix="Open a notebook.")
        if state == "off":
            self._autocell.turn(on=False)
            return Note("Cells run here again.")
        cluster = self.session.cluster()
        self._autocell.turn(on=True)
        return Note(self._autocell.banner(cluster.name, len(cluster.workers)))
