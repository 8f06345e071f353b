"""What the rooms' tests share: an emulator of this test session's own."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


LONG = ("jobs/test_job_training.py", "notebooks/test_notebooks.py", "widgets/test_panel_browser.py")
"""Files of minutes: last, each would keep one of two workers while the other has nothing left to do."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest; the rest stays in its order."""
    items.sort(key=lambda item: not item.path.as_posix().endswith(LONG))


def pytest_configure() -> None:
    """Judge by what is right, not by how fast a machine that others use is, and let Ctrl-C mean what it means.

    A shell has what it puts in the background ignore SIGINT.
    """
    slow = hypothesis.HealthCheck.too_slow
    hypothesis.settings.register_profile("shared machine", deadline=None, suppress_health_check=[slow])
    hypothesis.settings.load_profile("shared machine")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def emulator_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A state folder of this session's own with a running emulator, which must be empty when it is stopped."""
    from multislice_nb.emulator import daemon

    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MULTISLICE_NB_HOME", str(home))
        daemon.ensure_running(owner_pid=os.getpid())
        yield home
        left = (daemon.status() or {}).get("queuedResources")
        daemon.stop()
    assert not left, f"tests left queued resources behind: {left}"


@pytest.fixture(scope="module")
def emulator_apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The state folder of an emulator that only one module uses, for tests about all that there is."""
    from multislice_nb.testing import emulator

    home = tmp_path_factory.mktemp("home")
    with emulator(time_factor=1, home=home):
        yield home


@pytest.fixture
def fault(emulator_home: Path) -> Iterator[Callable[..., None]]:
    """Make a failure happen in the emulator; all are taken back at the end."""
    from multislice_nb.emulator import daemon

    def inject(kind: str, **parameters: Any) -> None:
        daemon.call(daemon.ensure_running(), "POST", "/emulator/v1/faults", {"kind": kind, **parameters})

    yield inject
    if daemon.is_running():
        daemon.call(daemon.ensure_running(), "DELETE", "/emulator/v1/faults")
