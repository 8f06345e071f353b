"""What stands in front of gcloud's ssh and scp."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from multislice_nb.emulator.client_environment import write_gcloud_files

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.skipif(shutil.which("ssh") is None, reason="OpenSSH is not installed")
def test_the_port_is_that_of_the_emulator_that_runs_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it is started from a shell that an earlier one's shims were put in front of; none without a port."""
    shims = tmp_path / "gcloud-bin"
    write_gcloud_files(tmp_path, "token", 20001)
    monkeypatch.setenv("PATH", f"{shims}{os.pathsep}{os.environ['PATH']}")
    write_gcloud_files(tmp_path, "token", 20002)
    assert "20002" in (shims / "ssh").read_text()
    assert str(shims) not in (shims / "ssh").read_text()
    write_gcloud_files(tmp_path, "token", 0)
    assert list(shims.iterdir()) == []
