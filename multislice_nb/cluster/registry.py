"""The clusters that this process has attached, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multislice_nb import errors

if TYPE_CHECKING:
    from multislice_nb.cluster.cluster import Cluster

__all__ = ["add", "attached", "clusters", "find", "remove"]

_attached: dict[str, Cluster] = {}


def add(cluster: Cluster) -> None:
    """Remember a cluster as the one attached last."""
    _attached.pop(cluster.name, None)
    _attached[cluster.name] = cluster


def find(name: str) -> Cluster | None:
    """A cluster by its name, if it is attached."""
    return _attached.get(name)


def remove(cluster: Cluster) -> None:
    """Forget a cluster, unless another of its name has taken its place."""
    if _attached.get(cluster.name) is cluster:
        del _attached[cluster.name]


def clusters() -> tuple[Cluster, ...]:
    """All clusters that this process has attached, the one attached or chosen last first."""
    return tuple(reversed(_attached.values()))


def attached(name: str | None = None) -> Cluster:
    """A cluster that this process has attached: by name, or the one attached last.

    Raises:
        errors.ClusterError: There is none, or not that one.
    """
    if name is None and _attached:
        return next(reversed(_attached.values()))
    if name is not None and name in _attached:
        return _attached[name]
    others = f"Attached: {', '.join(one.name for one in clusters())}. " if _attached else ""
    raise errors.ClusterError(
        f"{name} is not attached." if name else "No cluster is attached.",
        fix=f"{others}%multislice attach {name or 'NAME'}, or ms.attach(queued_resource).",
    )
