"""What the rooms' tests share: an emulator of this test session's own."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def emulator_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A state folder of this session's own with a running emulator, stopped at the end."""
    from multislice_nb.emulator import daemon

    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MULTISLICE_NB_HOME", str(home))
        daemon.ensure_running(owner_pid=os.getpid())
        yield home
        daemon.stop()
