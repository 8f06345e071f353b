"""What the magics and panels of one notebook have at hand: the connection, the clusters, the last results."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from multislice_nb import _portal
from multislice_nb.errors import MultisliceError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from multislice_nb.cloud import Cloud, QueuedResource, QueuedResources, QueuedResourceStatus
    from multislice_nb.cluster import Cluster
    from multislice_nb.experiments import Results

__all__ = ["Session", "current"]

_FRESH = 2.0
"""Seconds for which the names that completion offers are not asked for again."""


_sessions: list[Session] = []


def current() -> Session:
    """The session of this process, since a kernel has one notebook."""
    if not _sessions:
        _sessions.append(Session())
    return _sessions[0]


class Session:
    """State that magics and panels share.

    Attributes:
        results: Of the last sweep.
        names: Queued resources as last listed, for completion.
    """

    def __init__(self) -> None:
        self.results: Results | None = None
        self.names: tuple[str, ...] = ()
        self._cloud: Cloud | None = None
        self._asked_at = float("-inf")
        self._asking: Any = None

    @property
    def cloud(self) -> Cloud | None:
        """The connection, if there is one that is open."""
        return None if self._cloud is None or self._cloud.closed else self._cloud

    def connect(
        self,
        project: str | None = None,
        zone: str | None = None,
        *,
        endpoint: str | None = None,
        emulator: bool | None = None,
    ) -> Cloud:
        """Connect, and keep the connection for the next lines."""
        from multislice_nb.cloud import connect

        self._cloud = connect(project, zone, endpoint=endpoint, emulator=emulator)
        return self._cloud

    def connected(self) -> Cloud:
        """The connection; made now if there is none."""
        return self.cloud or self.connect()

    def get(self, name: str, zone: str | None = None) -> QueuedResource:
        """A queued resource by name."""
        found = self.connected().get(name, zone)
        self.know(found.name)
        return found

    def list(self, zone: str | None = None) -> QueuedResources:
        """All queued resources of a zone."""
        found = self.connected().list(zone)
        self.names = found.names
        return found

    def know(self, *names: str) -> None:
        """Offer these names in completion too."""
        self.names = tuple(dict.fromkeys([*self.names, *names]))

    def forget(self, names: Iterable[str]) -> None:
        """They are gone."""
        gone = set(names)
        self.names = tuple(name for name in self.names if name not in gone)

    def use(self, cluster: Cluster) -> None:
        """Cells run on it from now on."""
        from multislice_nb.cluster import registry

        registry.add(cluster)

    def cluster(self, name: str | None = None) -> Cluster:
        """An attached cluster by name, or the one attached or chosen last.

        Raises:
            ClusterError: There is none, or not that one.
        """
        from multislice_nb.cluster import attached

        return attached(name)

    def clusters(self) -> tuple[Cluster, ...]:
        """Those that are attached, the current one first."""
        from multislice_nb.cluster import clusters

        return clusters()

    async def let_go(self, deleted: QueuedResource | QueuedResourceStatus) -> None:
        """Detach from what is being deleted, since its engines end with it."""
        for cluster in self.clusters():
            if (cluster.name, cluster.queued_resource.zone) == (deleted.name, deleted.zone):
                await cluster.adetach()

    def elsewhere(self) -> dict[str, str]:
        """Zones of what this user asked for outside the connection's, by the names that find it all the same."""
        cloud = self.cloud
        if cloud is None:
            return {}
        ours = (entry for entry in cloud.ledger.entries() if entry.project == cloud.project)
        return {entry.name: entry.zone for entry in ours if entry.zone != cloud.zone}

    def refresh_names(self) -> None:
        """Ask for the names again in the background, for the next time; nothing waits for it."""
        cloud = self.cloud
        if cloud is None or time.monotonic() - self._asked_at < _FRESH:
            return
        self._asked_at = time.monotonic()

        async def ask() -> None:
            try:
                self.names = (await cloud.alist()).names
            except MultisliceError:
                return  # completion offers what it knew; the next command says what is wrong

        self._asking = asyncio.run_coroutine_threadsafe(ask(), _portal.loop())
