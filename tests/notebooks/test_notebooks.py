"""The notebooks as people run them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from multislice_nb.demo import find_notebook

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))
SCREEN = 30
"""Lines of a cell that fit on a screen."""


def load(path: Path) -> list[dict[str, Any]]:
    """A notebook's code cells."""
    cells: list[dict[str, Any]] = json.loads(path.read_text())["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


@pytest.fixture
def own_emulator(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of an emulator that nobody else uses, stopped at the end."""
    environment = os.environ | {"MULTISLICE_NB_HOME": str(tmp_path / "home")}
    yield environment
    subprocess.run(
        [sys.executable, "-m", "multislice_nb", "emulator", "stop"],
        env=environment,
        check=True,
        capture_output=True,
    )


def test_there_are_notebooks() -> None:
    """The quickstart is there, and is found by name."""
    assert "00_quickstart.ipynb" in NOTEBOOKS
    assert find_notebook("00_quickstart.ipynb").samefile(FOLDER / "00_quickstart.ipynb")


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_committed_without_outputs(name: str) -> None:
    """No output, no execution count, no cell longer than a screen, and one parameters cell."""
    cells = load(FOLDER / name)
    assert not [cell for cell in cells if cell["outputs"] or cell["execution_count"]]
    assert all(len("".join(cell["source"]).splitlines()) <= SCREEN for cell in cells)
    assert sum("parameters" in cell["metadata"].get("tags", []) for cell in cells) == 1


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_every_cell_runs(name: str, tmp_path: Path, own_emulator: dict[str, str]) -> None:
    """With nbmake it passes, and every code cell really ran, which nbmake alone does not see to."""
    copy = tmp_path / name
    copy.write_text((FOLDER / name).read_text())
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--nbmake", "--overwrite",
         "--nbmake-timeout=500", f"--rootdir={tmp_path}", "-c", os.devnull, str(copy)],
        cwd=tmp_path,
        env=own_emulator,
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:]
    cells = [cell for cell in load(copy) if "".join(cell["source"]).strip()]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert not [o for cell in cells for o in cell["outputs"] if o["output_type"] == "error"]
    assert not [o for cell in cells for o in cell["outputs"] if "UsageError" in str(o)]
