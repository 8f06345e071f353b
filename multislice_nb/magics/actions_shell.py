"""The subcommands about files and shells of the workers, which need SSH alone and no engine."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from multislice_nb.errors import MagicError
from multislice_nb.magics.base import Base
from multislice_nb.magics.cells import CellInterrupted, show_result
from multislice_nb.magics.views import Note, Table, commands

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from multislice_nb.cluster import CellResult
    from multislice_nb.cluster.detached import Detached, DetachedStatus
    from multislice_nb.cluster.reaching import Reach

__all__ = ["ShellActions"]

_DETACHED_ONLY, _ATTACHED_ONLY = {"name", "folder"}, {"timeout", "grace", "output_directory"}


class ShellActions(Base):
    """Each method is a subcommand."""

    def sh(
        self,
        command: str,
        *,
        detach: bool = False,
        output: str | None = None,
        cluster: str | None = None,
        **options: Any,
    ) -> Note | None:
        """`sh`."""
        strange = sorted(set(options) & (_ATTACHED_ONLY if detach else _DETACHED_ONLY))
        if strange:
            flag = f"--{strange[0].replace('_', '-')}"
            raise MagicError(
                f"{flag} says nothing of a command that is {'' if detach else 'not '}detached.",
                fix=f"Leave {flag} out, or {'leave --detach out' if detach else 'add --detach'}.",
            )
        with self._reached(cluster) as reach:
            if not detach:
                run = reach.shell.run
                self._shown(lambda look: run(command, check=False, on_update=look, **options), output)
                return None
            started = reach.shell.start(command, **options)
            if output is not None:
                self._keep(output, started)
            return Note(
                f"{started.name} runs on {len(started.workers)} workers of {reach.site.name} and outlives this "
                f"notebook.\nSee it: %multislice logs {started.id}   end it: %multislice stop {started.id}"
            )

    def ps(self, *, cluster: str | None = None) -> Table:
        """`ps`."""
        from multislice_nb import _portal

        async def statuses(found: Sequence[Detached]) -> list[DetachedStatus]:
            return await asyncio.gather(*(one.astatus() for one in found))

        with self._reached(cluster) as reach:
            found = reach.shell.detached()
            return commands(zip(found, _portal.sync(statuses, found), strict=True))

    def logs(self, name: str, *, follow: bool = False, cluster: str | None = None, **options: int) -> None:
        """`logs`."""
        with self._reached(cluster) as reach:
            found = reach.shell.find(name)
            if follow:
                self._shown(lambda look: found.follow(check=False, on_update=look), None)
            else:
                show_result(found.output(**options), self._line())

    def stop(self, name: str, *, cluster: str | None = None, **options: float) -> DetachedStatus:
        """`stop`."""
        with self._reached(cluster) as reach:
            return reach.shell.find(name).stop(**options)

    def push(
        self,
        source: str,
        destination: str | None = None,
        *,
        ranks: Sequence[int] | None = None,
        delete: bool = False,
        no_gitignore: bool = False,
        cluster: str | None = None,
    ) -> Any:
        """`push`."""
        line = self._line()
        with self._reached(cluster) as reach:
            done = reach.files.push(
                source,
                destination,
                ranks=ranks,
                delete=delete,
                gitignore=not no_gitignore,
                on_update=lambda look: line.show(str(look), step=f"Pushing {source}"),
            )
        line.end()
        return done

    def pull(
        self,
        source: str,
        folder: str = ".",
        *,
        ranks: Sequence[int] | None = None,
        cluster: str | None = None,
    ) -> Any:
        """`pull`."""
        line = self._line()
        with self._reached(cluster) as reach:
            done = reach.files.pull(
                source,
                folder,
                ranks=ranks,
                on_update=lambda look: line.show(str(look), step=f"Pulling {source}"),
            )
        line.end()
        return done

    @contextmanager
    def _reached(self, name: str | None) -> Iterator[Reach]:
        """The workers of an attached cluster; of one that is not, over connections for this call alone."""
        from multislice_nb.cluster import registry
        from multislice_nb.cluster.reaching import reach

        if name is None or registry.find(name) is not None:
            yield self.session.cluster(name).reach
            return
        with reach(self.session.get(name)) as opened:
            yield opened

    def _shown(self, run: Callable[[Callable[[object], None]], CellResult], output: str | None) -> None:
        line = self._line()
        try:
            result = run(lambda look: line.show(str(look)) if output is None else None)
        except KeyboardInterrupt:
            raise CellInterrupted("the command was stopped where it ends with this cell.") from None
        self._finish(result, line, output)
