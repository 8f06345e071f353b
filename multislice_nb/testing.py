"""A Cloud TPU emulator for users' own test suites: fast, isolated, gone afterwards.

    from multislice_nb.testing import emulator

    def test_my_automation():
        with emulator() as tpu:
            cloud = multislice_nb.connect()          # reaches this emulator
            ...
            tpu.preempt("demo-1")                     # and any other fault

With pytest, the fixture `multislice_emulator` does the same; make it known to a suite with
`pytest_plugins = ["multislice_nb.testing"]` in the top-level conftest.py.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

__all__ = ["emulator"]

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from multislice_nb.emulator.control import EmulatorControl


@contextlib.contextmanager
def emulator(*, time_factor: float = 0.0, home: Path | None = None) -> Iterator[EmulatorControl]:
    """An emulator of one's own, to which `connect()` without a project goes while the context lasts.

    Args:
        time_factor: How long the steps of the lifecycle take: 1 is about a second in all, 0 is at once.
        home: Its state folder; a temporary one when None.

    Yields:
        A hand on it: faults, time, state, and its address.

    Raises:
        EmulatorError: It did not start, or did not end.
    """
    from multislice_nb.emulator import daemon
    from multislice_nb.emulator.control import EmulatorControl
    from multislice_nb.emulator.own import own_home

    with own_home(home, MULTISLICE_NB_EMULATOR_TIME_FACTOR=str(time_factor)):
        address = daemon.ensure_running(owner_pid=os.getpid())
        yield EmulatorControl(address)


# pytest is the user's, not a dependency of ours: without it there is no fixture, and nothing else changes.
with contextlib.suppress(ImportError):
    import pytest

    @pytest.fixture
    def multislice_emulator() -> Iterator[EmulatorControl]:
        """An emulator of the test's own, with a fast clock and the fault API."""
        with emulator() as control:
            yield control
