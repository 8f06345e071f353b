"""The emulator's faults and a connection to it, for the tests of this room."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from multislice_nb import config
from multislice_nb.cloud import Cloud, connect
from multislice_nb.cloud.ledger import Ledger
from multislice_nb.cloud.ssh_settings import google_ssh

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cloud.memory_provider import ZONE, MemoryProvider
else:
    from memory_provider import ZONE, MemoryProvider  # pytest puts this folder on the path


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
            connection.ledger.end(entry.request_id)


@pytest.fixture
def clock(emulator_home: Path) -> Iterator[Callable[..., None]]:
    """Set the emulator's pace, or move its time forward."""
    from multislice_nb.emulator import daemon

    def change(**parameters: float) -> None:
        daemon.call(daemon.ensure_running(), "POST", "/emulator/v1/clock", parameters)

    yield change
    change(factor=1.0)


@pytest.fixture
def in_memory(tmp_path: Path) -> Iterator[Cloud]:
    """A connection to a provider that keeps everything in memory, with a ledger of its own."""
    provider = MemoryProvider()
    settings = config.settings(provider.project, ZONE, emulator=False)
    connection = Cloud(provider, settings, google_ssh(None, None), Ledger(tmp_path / "l.sqlite3", "google"))
    yield connection
    connection.close()
