"""The package as the workers get it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from io import BytesIO
from typing import TYPE_CHECKING

from multislice_nb.cluster.payload import payload

if TYPE_CHECKING:
    from pathlib import Path


def test_payload_is_importable_from_the_zip(tmp_path: Path) -> None:
    """A Python that has only the zip can import the agent, and takes it from the zip."""
    path = tmp_path / payload().name
    path.write_bytes(payload().content)
    code = "import multislice_nb.cluster.agent as a, multislice_nb.errors; print(a.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(path), "PATH": ""},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(path) in done.stdout


def test_payload_is_named_by_its_content() -> None:
    """The same sources give the same bytes, so what is there already is not sent again."""
    first = payload()
    payload.cache_clear()
    assert payload() == first


def test_payload_leaves_out_what_only_a_notebook_uses() -> None:
    """No magic, widget or emulator goes to the workers."""
    names = zipfile.ZipFile(BytesIO(payload().content)).namelist()
    assert "multislice_nb/cluster/agent.py" in names
    assert not [name for name in names if "/magics/" in name or "/widgets/" in name or "/emulator/" in name]
