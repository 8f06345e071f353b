"""This session's emulator, given back as it was after each test."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from multislice_nb.emulator import daemon
from multislice_nb.emulator.control import EmulatorControl

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.emulator.emulated_tpu import Emulated
else:
    from emulated_tpu import Emulated

PACE = 0.2
"""How long the lifecycle takes, of its usual second: long enough to be seen in each of its states."""


@pytest.fixture
def emulated(emulator_home: Path) -> Iterator[Emulated]:
    """The session's emulator, at a faster pace, given back as it was: no faults, no queued resources, no nodes."""
    one = Emulated(daemon.ensure_running(owner_pid=os.getpid()))
    control = EmulatorControl(one.address)
    control.set_time_factor(PACE)
    yield one
    one.rest("DELETE", "/emulator/v1/faults")
    for name in one.rest("GET", "/emulator/v1/status").body["queuedResources"]:
        one.rest("DELETE", f"/v2/{name}?force=true")
    for name in one.rest("GET", "/emulator/v1/status").body["nodes"]:
        one.rest("DELETE", f"/v2/{name}")
    one.until(lambda: not one.rest("GET", "/emulator/v1/status").body["vms"])
    one.until(lambda: not one.rest("GET", "/emulator/v1/status").body["queuedResources"])
    control.set_time_factor(1.0)


@pytest.fixture
def bearer(emulated: Emulated) -> list[tuple[str, str]]:
    """Metadata of a call that carries the token."""
    return [("authorization", f"Bearer {emulated.address.token}")]
