"""The subcommands about the machines of slices: watching them, maintenance, who may log in."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from multislice_nb.errors import MagicError
from multislice_nb.magics.base import Base
from multislice_nb.magics.cells import CellInterrupted
from multislice_nb.magics.views import Note, Table, timeline_text

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from multislice_nb.cloud import QueuedResource

__all__ = ["SliceActions"]


class SliceActions(Base):
    """Each method is a subcommand."""

    def nodes(self, zone: str | None = None) -> Table:
        """`nodes`."""
        found = self.session.connected().nodes(zone)
        return Table(
            ("node", "zone", "type", "state", "health", "queued resource"),
            tuple(
                (
                    node.node_id,
                    node.zone,
                    node.accelerator_type,
                    node.state,
                    node.health,
                    node.queued_resource or "",
                )
                for node in found
            ),
            empty="No slices.",
        )

    def watch(self, name: str, zone: str | None = None, *, nodes: bool = False) -> Note:
        """`watch`."""
        found, line = self.session.get(name, zone), self._line()
        looks = _nodes(found) if nodes else _states(found)
        try:
            with closing(looks):
                for text, step in looks:
                    line.show(text, step=step)
        except KeyboardInterrupt:
            raise CellInterrupted(f"{name} is no longer watched, and stays as it is.") from None
        finally:
            line.end()
        return Note(f"{name} is gone.")

    def maintenance(
        self,
        name: str,
        zone: str | None = None,
        *,
        perform: bool = False,
        node_ids: Sequence[str] = (),
    ) -> Table | Note:
        """`maintenance`."""
        found = self.session.get(name, zone)
        if node_ids and not perform:
            raise MagicError(
                "--node-names says nothing without --perform.", fix="Add --perform, or leave it out."
            )
        if not perform:
            rows = tuple((node_id, str(coming)) for node_id, coming in found.maintenance().items())
            return Table(("node", "maintenance"), rows, empty=f"No maintenance is announced for {name}.")
        done = self._follow(f"Maintaining {name}", lambda _: found.aperform_maintenance(node_ids))
        return Note(
            f"Maintenance was done on {', '.join(done)}." if done else f"No slice of {name} needs it."
        )

    def authorize_ssh(self, name: str, user: str, key: str, zone: str | None = None) -> Note:
        """`authorize-ssh`."""
        try:
            text = Path(key).expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise MagicError(
                f"The public key {key} cannot be read: {getattr(error, 'strerror', None) or 'it is no text'}.",
                fix="Give the path of a .pub file.",
            ) from error
        self.session.get(name, zone).authorize_ssh(user, text)
        return Note(f"{user} may log in to every worker of {name} with {key}, a few seconds from now.")

    def guest_attributes(self, node: str, zone: str | None = None, *, query_path: str = "hostkeys/") -> Table:
        """`guest-attributes`."""
        found = self.session.connected().guest_attributes(node, query_path, zone)
        rows = tuple(
            (str(worker), key, value)
            for worker, there in enumerate(found)
            for key, value in sorted(there.items())
        )
        return Table(
            ("worker", "key", "value"),
            rows,
            empty=f"The workers of {node} published none below {query_path}.",
        )

    def touch(self, name: str, zone: str | None = None) -> Note:
        """`touch`."""
        self.session.get(name, zone).touch()
        return Note(f"{name} counts as used now.")


def _states(found: QueuedResource) -> Generator[tuple[str, str], None, None]:
    for status in found.watch():
        yield timeline_text(found.timeline()), f"{status.name} {status.state}"


def _nodes(found: QueuedResource) -> Generator[tuple[str, str], None, None]:
    for nodes in found.watch_nodes():
        text = "\n".join(map(str, nodes)) or f"{found.name} has no slices."
        yield text, text
