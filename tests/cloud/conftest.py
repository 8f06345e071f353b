"""The emulator's faults and a connection to it, for the tests of this room."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from multislice_nb.cloud import Cloud, connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def cloud(emulator_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    """A connection to the session's emulator; what a test leaves there is deleted."""
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(emulator_home / "no-gcloud"))
    connection = connect(emulator=True)
    others = {handle.name for handle in connection.list("-")}
    yield connection
    connection = connect(emulator=True)  # a test may have closed it
    for handle in connection.list("-"):
        if handle.name not in others:
            handle.delete()
    for entry in connection.ledger.entries():
        if entry.name not in others:
            connection.ledger.end(entry.project, entry.zone, entry.name)


@pytest.fixture
def clock(emulator_home: Path) -> Iterator[Callable[..., None]]:
    """Set the emulator's pace, or move its time forward."""
    from multislice_nb.emulator import daemon

    def change(**parameters: float) -> None:
        daemon.call(daemon.ensure_running(), "POST", "/emulator/v1/clock", parameters)

    yield change
    change(factor=1.0)
