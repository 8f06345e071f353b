"""An emulator of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multislice_nb import config
from multislice_nb.emulator.own import own_home

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_configured_project_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo and the fixture for tests never ask Google Cloud for slices."""
    monkeypatch.delenv("MULTISLICE_NB_EMULATOR", raising=False)
    monkeypatch.setenv("CLOUDSDK_CORE_PROJECT", "somebodys-project")
    monkeypatch.setenv("CLOUDSDK_COMPUTE_ZONE", "us-central2-b")
    assert not config.settings().is_emulator
    with own_home(tmp_path / "home"):
        assert config.settings().is_emulator
