"""`create`: a request from flags, from gcloud's own command, or from the body of a REST call."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multislice_nb._portal import sync
from multislice_nb._texts import lasted
from multislice_nb.errors import MagicError
from multislice_nb.magics.base import Base
from multislice_nb.magics.views import Note, timeline_text

if TYPE_CHECKING:
    from multislice_nb.cloud import Cloud, QueuedResource, QueuedResourceRequest, QueuedResourceStatus

__all__ = ["CreateActions"]

_OURS = {"ttl", "idle_limit", "until_exit", "zones", "capacities", "race", "capacity_timeout", "recreate"}
"""Of `Cloud.create`, but no fields of a request."""
_SEARCH = {"zones", "capacities"}


class CreateActions(Base):
    """`create`, and waiting for what was created."""

    def create(
        self,
        name: str | None = None,
        *,
        request: str | None = None,
        from_rest: str | None = None,
        project: str | None = None,
        wait: bool = False,
        no_wait: bool = False,  # noqa: ARG002 - gcloud's --async says what happens anyway
        dry_run: bool = False,
        **fields: Any,
    ) -> QueuedResource | Note:
        """`create`."""
        asked = self._asked(name, request, from_rest)
        ours = {key: fields.pop(key) for key in _OURS & set(fields)}
        ours |= {"race": False} if fields.pop("in_order", False) else {}
        _refuse_lonely(ours)
        wanted = project or getattr(asked, "project", None)
        cloud = self._cloud(wanted, fields.get("zone") or getattr(asked, "zone", None))
        if cloud.is_emulator and not isinstance(asked, str):
            asked = asked.replace(project=cloud.project)
        _read_files(fields)
        whole = _completed(cloud, asked, fields)
        if dry_run:
            return Note(f"{whole}\n{whole.to_gcloud()}")
        made = self._made(cloud, whole, ours)
        if ours.get("recreate"):
            sync(self.session.let_go, made)
        self.session.know(made.name)
        return self._awaited(made) if wait else made

    def _cloud(self, project: str | None, zone: str | None) -> Cloud:
        """The connection, which a request never changes: other lines would mean another project from then on."""
        cloud = self.session.cloud
        if cloud is None:
            return self.session.connect(project, zone if project else None)
        if project not in {None, cloud.project}:
            if not cloud.is_emulator:
                raise MagicError(
                    f"This notebook is connected to project {cloud.project}, and this asks in project {project}.",
                    fix=f"%multislice connect --project {project} first, or leave the project out.",
                )
            print(f"Note: on the emulator, which stands for any project, {project} included.")
        return cloud

    def _made(self, cloud: Cloud, request: QueuedResourceRequest, ours: dict[str, Any]) -> QueuedResource:
        if not _SEARCH & set(ours) and not ours.get("recreate"):
            return cloud.create(request, **ours)
        if not _SEARCH & set(ours):
            return self._follow(f"Recreating {request.name}", lambda _: cloud.acreate(request, **ours))
        if "capacity_timeout" in ours:
            ours["patience"] = ours.pop("capacity_timeout")
        where = ", ".join(ours.get("zones", ()) or ours["capacities"])
        return self._follow(
            f"Asking for {request.name} in {where}", lambda _: cloud.acreate_anywhere(request, **ours)
        )

    def _asked(
        self, name: str | None, text: str | None, from_rest: str | None
    ) -> str | QueuedResourceRequest:
        """What was pasted or named, or the name alone where flags say the rest."""
        from multislice_nb.cloud import QueuedResourceRequest

        if from_rest is not None:
            if text is not None:
                raise MagicError("There are two requests.", fix="Leave out --from-rest, or what was pasted.")
            return QueuedResourceRequest.from_rest(self._body(from_rest), name)
        if text is None:
            return str(name)
        if text.lstrip().startswith(("{", "curl", "$ curl")):
            return QueuedResourceRequest.from_rest(text, name)
        found = QueuedResourceRequest.from_gcloud(text, self._shell_variables())
        return found.replace(name=name) if name else found

    def _body(self, name: str) -> Mapping[str, Any] | str | Path:
        """A REST body by the name of its variable or file."""
        found = self._variables.get(name)
        if found is None or Path(name).is_file():
            return Path(name)
        if isinstance(found, (Mapping, str, Path)):
            return found
        raise MagicError(
            f"The variable {name} holds no body of a create call, but an object of type {type(found).__name__}.",
            fix="Give a dictionary, its JSON text, or a file.",
        )

    def _shell_variables(self) -> dict[str, str]:
        """What `$ZONE` in a pasted command may mean: the notebook's variables, then the environment."""
        mine = {
            key: str(value)
            for key, value in self._variables.items()
            if not key.startswith("_") and isinstance(value, (str, int, Path)) and not isinstance(value, bool)
        }
        return {**os.environ, **mine}

    def _awaited(self, queued_resource: QueuedResource, **limits: Any) -> QueuedResource:
        line = self._line()

        def progress(status: QueuedResourceStatus) -> None:
            line.show(_path(queued_resource, status), step=f"{status.name} {status.state}")

        try:
            queued_resource.wait(progress=progress, **limits)
        finally:
            line.end(_path(queued_resource, queued_resource.status) if line.watched else "")
        return queued_resource


def _refuse_lonely(ours: Mapping[str, Any]) -> None:
    """Flags that say how to choose, where there is nothing to choose from."""
    if _SEARCH & set(ours):
        return
    flags = {"capacity_timeout": "capacity-timeout", "race": "race" if ours.get("race") else "in-order"}
    for key in sorted(flags.keys() & set(ours)):
        raise MagicError(f"--{flags[key]} needs places to choose from.", fix="Add --zones or --capacities.")


def _completed(
    cloud: Cloud, asked: str | QueuedResourceRequest, fields: dict[str, Any]
) -> QueuedResourceRequest:
    """The whole request, checked, with the connection's project, zone and defaults where it leaves them open."""
    from multislice_nb.cloud.drafts import complete

    return complete(asked, fields, cloud.project, cloud.zone)


def _read_files(fields: dict[str, Any]) -> None:
    """Texts in place of the files that flags name."""
    if "startup_script" in fields:
        fields["startup_script"] = Path(fields["startup_script"])
    files = fields.pop("metadata_from_file", {})
    if files:
        texts = {key: _text_of(key, file) for key, file in files.items()}
        fields["metadata"] = {**fields.get("metadata", {}), **texts}


def _path(queued_resource: QueuedResource, status: QueuedResourceStatus) -> str:
    """The timeline, and how long it has been where it is."""
    seconds = status.time_in_state()
    since = f" {lasted(seconds)}" if seconds is not None and not status.is_active else ""
    return f"{timeline_text(queued_resource.timeline())}{since}"


def _text_of(key: str, file: str) -> str:
    try:
        return Path(file).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise MagicError(
            f"The file {file} for the metadata {key} cannot be read: {error}.",
            fix="Give the path of a text file.",
        ) from error
