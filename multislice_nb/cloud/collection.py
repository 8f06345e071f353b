"""A list of queued resources, shown as gcloud shows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

from multislice_nb.cloud.display import html_table, shouted, text_table
from multislice_nb.errors import NotFoundError

if TYPE_CHECKING:
    from multislice_nb.cloud.queued_resource import QueuedResource
    from multislice_nb.cloud.status import QueuedResourceStatus

__all__ = ["QueuedResources"]

_HEADER = ("name", "zone", "node count", "accelerator type", "state", "for", "capacity", "chips")


class QueuedResources(Sequence["QueuedResource"]):
    """Handles in the order the API lists them; also by name, as in `resources["demo"]`."""

    def __init__(self, handles: Sequence[QueuedResource]) -> None:
        self._handles = tuple(handles)

    @property
    def statuses(self) -> tuple[QueuedResourceStatus, ...]:
        """What was seen of each when the list was made."""
        return tuple(handle.status for handle in self._handles)

    @property
    def names(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(handle.name for handle in self._handles)

    @overload
    def __getitem__(self, index: int | str) -> QueuedResource: ...
    @overload
    def __getitem__(self, index: slice) -> QueuedResources: ...
    def __getitem__(self, index: int | str | slice) -> QueuedResource | QueuedResources:
        if isinstance(index, slice):
            return QueuedResources(self._handles[index])
        if isinstance(index, int):
            return self._handles[index]
        for handle in self._handles:
            if handle.name == index:
                return handle
        raise NotFoundError(
            f"There is no queued resource {index} in this list.",
            fix=f"There are: {', '.join(self.names) or 'none'}.",
        )

    def __len__(self) -> int:
        return len(self._handles)

    def __repr__(self) -> str:
        return f"<QueuedResources {', '.join(self.names) or 'none'}>"

    def __str__(self) -> str:
        if not self._handles:
            return "No queued resources."
        return text_table(shouted(_HEADER), [status.row() for status in self.statuses])

    def _repr_html_(self) -> str:
        if not self._handles:
            return "<p>No queued resources.</p>"
        return html_table(_HEADER, [status.row() for status in self.statuses])
