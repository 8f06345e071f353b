"""Eight CPU devices in a process of their own, for all tests of this room."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from multislice_nb.experiments import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def devices() -> Iterator[LocalCluster]:
    """A worker with eight devices."""
    with LocalCluster(8) as cluster:
        yield cluster
