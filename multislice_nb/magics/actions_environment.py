"""The subcommands about what workers have: packages, variables, and who holds their TPUs."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from multislice_nb.errors import MagicError
from multislice_nb.magics.actions_shell import ShellActions
from multislice_nb.magics.views import Note

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from multislice_nb.cluster.environment import Environment
    from multislice_nb.cluster.environment_report import CleanResult, EnvironmentReport, Installed
    from multislice_nb.cluster.usage import UsageReport

__all__ = ["EnvironmentActions"]


class EnvironmentActions(ShellActions):
    """Each method is a subcommand."""

    def environment(self, *, cluster: str | None = None) -> EnvironmentReport:
        """`environment`."""
        with self._environment(cluster) as found:
            return found.report()

    def environment_usage(self, *, cluster: str | None = None) -> UsageReport:
        """`environment usage`."""
        with self._environment(cluster) as found:
            return found.usage()

    def environment_clean(
        self, *, force: bool = False, cluster: str | None = None, **options: float
    ) -> CleanResult:
        """`environment clean`."""
        with self._environment(cluster) as found:
            return found.clean(force=force, **options)

    def environment_set(
        self,
        variables: Mapping[str, str] | None = None,
        *,
        file: str | None = None,
        cluster: str | None = None,
    ) -> Note:
        """`environment set`."""
        if variables and file:
            raise MagicError("Variables come from one place.", fix="Leave out --file, or the others.")
        with self._environment(cluster) as found:
            late = found.set(variables or str(file))
            names = sorted({name for values in found.variables().values() for name in values})
        restart = f"\n{', '.join(late)} count from the next %multislice restart." if late else ""
        return Note(f"Set on all workers: {', '.join(names) or 'nothing'}.{restart}")

    def environment_variables(self, *, values: bool = False, cluster: str | None = None) -> Note:
        """`environment variables`."""
        from multislice_nb.cluster.fold import fold

        with self._environment(cluster) as found:
            there = found.variables()
        texts = {
            rank: "\n".join(f"{name}={value}" if values else name for name, value in sorted(mine.items()))
            for rank, mine in there.items()
        }
        told = [f"[{who}]\n{text}" for who, text in fold(texts, total=len(there)) if text]
        return Note("\n".join(told) or "No variables were set.")

    def install(
        self,
        packages: Sequence[str] = (),
        *,
        requirements: str | None = None,
        upgrade: bool = False,
        cluster: str | None = None,
    ) -> Installed:
        """`install`."""
        line = self._line()
        doing = f"Installing {', '.join(packages) or requirements}"
        with self._environment(cluster) as found:
            line.show(doing, step=doing)
            done = found.install(*packages, requirements=requirements, upgrade=upgrade)
        line.end()
        return done

    @contextmanager
    def _environment(self, name: str | None) -> Iterator[Environment]:
        """That of an attached cluster, which its engines take part in; else over SSH alone."""
        from multislice_nb.cluster import registry

        if name is None or registry.find(name) is not None:
            yield self.session.cluster(name).environment
            return
        with self._reached(name) as reach:
            yield reach.environment
