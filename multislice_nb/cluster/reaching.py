"""The workers of a queued resource over SSH alone, whether or not engines run on them.

What holds a TPU must be seen before anything can be started on it, and a script needs no engines.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Self

from multislice_nb._portal import sync
from multislice_nb.cluster.formation import START_DEADLINE
from multislice_nb.cluster.inventory import ranks_text
from multislice_nb.cluster.journal import Journal
from multislice_nb.config import state_home

if TYPE_CHECKING:
    from multislice_nb.cloud import QueuedResource
    from multislice_nb.cluster.environment import Environment
    from multislice_nb.cluster.files import Files
    from multislice_nb.cluster.inventory import Worker
    from multislice_nb.cluster.shell import Shell
    from multislice_nb.cluster.site import Site
    from multislice_nb.cluster.ssh import Connections

__all__ = ["Reach", "areach", "reach"]


class Reach:
    """Open SSH connections to all workers of one queued resource, and what can be done over them.

    Args:
        site: Where they are.
        connections: Open connections to them.
        journal: Where all that they print is kept on this machine.
    """

    def __init__(self, site: Site, connections: Connections, journal: Journal) -> None:
        self.site = site
        self.connections = connections
        self.journal = journal

    @property
    def workers(self) -> tuple[Worker, ...]:
        """All workers, in rank order."""
        return self.site.workers

    @cached_property
    def files(self) -> Files:
        """Files to the workers and back."""
        from multislice_nb.cluster.files import Files

        return Files(self.connections, self.workers)

    @cached_property
    def shell(self) -> Shell:
        """Shell commands on the workers."""
        from multislice_nb.cluster.shell import Shell

        return Shell(self.connections, self.workers, self.journal)

    @cached_property
    def environment(self) -> Environment:
        """What the workers are like and have."""
        from multislice_nb.cluster.environment import Environment

        return Environment(self.connections, self.workers, self.site.name)

    def close(self) -> None:
        """Close the connections. Detached commands go on."""
        sync(self.connections.close)
        self.journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        who = (
            ranks_text(self.connections.ranks, total=len(self.workers))
            if self.connections.ranks
            else "nobody"
        )
        return f"<Reach {self.site.name}: {who}>"


def reach(queued_resource: QueuedResource | str, *, deadline: float = START_DEADLINE) -> Reach:
    """Connect to the workers of a queued resource without starting anything on them.

    Args:
        queued_resource: A queued resource, or its name in the project and zone in use.
        deadline: Seconds for SSH to answer on all workers.

    Returns:
        The connections, to be closed, or used in a `with` statement.

    Raises:
        errors.ConnectError: A slice is not READY, or a worker did not answer; names them.
    """
    if isinstance(queued_resource, str):
        from multislice_nb.cloud import connect

        queued_resource = connect().get(queued_resource)
    return sync(areach, queued_resource, deadline=deadline)


async def areach(queued_resource: QueuedResource, *, deadline: float = START_DEADLINE) -> Reach:
    """`reach`, to be awaited on the background loop."""
    from multislice_nb.cluster.attaching import site_of
    from multislice_nb.cluster.ssh import Connections

    site = await site_of(queued_resource)
    connections = Connections(site.ssh, site.known_hosts, site.proxies)
    await connections.open(site.workers, site.host_keys, deadline=deadline, grant=site.grant)
    return Reach(site, connections, Journal(state_home() / "logs" / site.name, site.workers))
