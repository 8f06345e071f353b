"""An attached cluster of two slices on the emulator, shared by the tests of a module."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from multislice_nb.cluster import Cluster


@pytest.fixture(scope="module")
def cluster(emulator_home: Path) -> Iterator[Cluster]:
    """2 slices of v4-16: 4 workers, 16 devices."""
    import multislice_nb as ms

    cloud = ms.connect()
    queued_resource = cloud.create("gang", accelerator_type="v4-16", node_count=2)
    try:
        queued_resource.wait(timeout=60)
        attached = ms.attach(queued_resource)
        yield attached
        attached.shutdown()
    finally:
        queued_resource.delete(force=True)
