"""An attached cluster of two slices on the emulator, shared by the tests of a module."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from multislice_nb.cluster import GangSettings
from tests.gangs import attached

if TYPE_CHECKING:
    from collections.abc import Iterator

    from multislice_nb.cluster import Cluster
    from multislice_nb.cluster.reaching import Reach


@pytest.fixture(scope="module")
def cluster(emulator_home: Path) -> Iterator[Cluster]:
    """2 slices of v4-16: 4 workers, 16 devices."""
    with attached("gang", "v4-16") as gang:
        yield gang


@pytest.fixture
def hasty(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with short graces, so that a test of a failure takes seconds."""
    kept, cluster.settings = cluster.settings, GangSettings(grace=1.0, interrupt_grace=2.0)
    yield cluster
    cluster.settings = kept


@pytest.fixture(scope="module")
def reached(emulator_home: Path) -> Iterator[Reach]:
    """4 workers over SSH, without engines: 2 slices of v4-16."""
    import multislice_nb as ms
    from multislice_nb.cluster.reaching import reach

    queued_resource = ms.connect().create("hands", accelerator_type="v4-16", node_count=2)
    try:
        queued_resource.wait(timeout=60)
        with reach(queued_resource) as hands:
            yield hands
    finally:
        queued_resource.delete(force=True)


@pytest.fixture(scope="module")
def homes(reached: Reach) -> list[Path]:
    """The home folders of those workers, by rank, which are folders of this machine."""
    from multislice_nb._portal import sync

    ended = sync(reached.connections.run_all, 'printf %s "$HOME"')
    return [Path(ended[rank].stdout) for rank in range(4)]
