"""What the Cloud TPU API says of the slices under a gang, when a worker is not there any more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from multislice_nb.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from multislice_nb.cloud import QueuedResource

__all__ = ["Health", "look"]

NEVER_BACK = frozenset({"PREEMPTED", "TERMINATED", "DELETING"})
"""States of a slice that is alone in its queued resource from which it does not come back."""


@dataclass(frozen=True, slots=True)
class Health:
    """One look at a queued resource.

    Attributes:
        name: The queued resource's name.
        state: Its state; empty where it is gone.
        node_ids: Its slices' names, in slice order.
        states: By slice, the state of its node; those without a node are left out.
    """

    name: str
    state: str
    node_ids: tuple[str, ...]
    states: Mapping[int, str]

    def trouble(self, slice_id: int) -> str:
        """What is the matter with a slice, as `node demo-1 is PREEMPTED`; empty where it is READY."""
        node = self.node_ids[slice_id] if slice_id < len(self.node_ids) else f"of slice {slice_id}"
        state = self.states.get(slice_id)
        if state is None:
            return f"node {node} does not exist any more"
        return "" if state == "READY" else f"node {node} is {state}"

    @property
    def repairs_itself(self) -> bool:
        """Whether all its slices will be there again without anybody doing anything.

        A slice of several is replaced, and the others are reset; one that is alone is repaired unless it was
        taken back.
        """
        several = len(self.node_ids) > 1
        return self.state == "ACTIVE" and (several or not NEVER_BACK & set(self.states.values()))

    @property
    def advice(self) -> str:
        """What to do next."""
        if self.repairs_itself:
            return (
                f"{self.name} repairs itself; attach again with %multislice attach {self.name} --recover, "
                f"or ms.attach({self.name!r}, recover=True)."
            )
        if not self.state:
            return f"{self.name} was deleted: create it again."
        state = "" if self.state == "ACTIVE" else f" is {self.state} and"
        return f"{self.name}{state} does not come back by itself: %multislice recreate {self.name}, or qr.recreate()."


async def look(queued_resource: QueuedResource) -> Health:
    """Ask the Cloud TPU API.

    Raises:
        errors.CloudError: It did not answer.
    """
    name = queued_resource.name
    try:
        status = await queued_resource.arefresh()
    except NotFoundError:
        return Health(name, "", queued_resource.status.node_ids, {})
    nodes = await queued_resource.anodes()
    return Health(name, status.state, status.node_ids, {node.slice_id: node.state for node in nodes})
