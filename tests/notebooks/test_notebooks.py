"""The notebooks as people run them, in every way in which they do.

With MULTISLICE_NB_EVERY_NOTEBOOK=1 every notebook runs in every way, which takes about half an hour;
otherwise all of them run under nbmake, and the other ways run those that are quick and have something to show.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from multislice_nb.demo import find_notebook

if TYPE_CHECKING:
    from pathlib import Path

    from tests.notebooks.ways import FOLDER, NOTEBOOKS, WAYS, check_cells, code_cells, copied
else:
    from ways import FOLDER, NOTEBOOKS, WAYS, check_cells, code_cells, copied

SCREEN = 30
"""Lines of a cell that fit on a screen."""

QUICK = ("05_data_parallelism",)
EVERY = [(name, way) for way in WAYS for name in NOTEBOOKS]
CHOSEN = [(name, way) for name, way in EVERY if way == "nbmake" or name in QUICK]


def test_there_are_notebooks() -> None:
    """The quickstart is there, and is found by name."""
    assert "00_quickstart" in NOTEBOOKS
    assert find_notebook("00_quickstart.ipynb").samefile(FOLDER / "00_quickstart.ipynb")


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_committed_as_it_should_be(name: str) -> None:
    """No output, no execution count, no cell longer than a screen, and parameters that each have a comment."""
    path = FOLDER / f"{name}.ipynb"
    cells = code_cells(path)
    assert not [cell for cell in cells if cell["outputs"] or cell["execution_count"]]
    assert all(len("".join(cell["source"]).splitlines()) <= SCREEN for cell in cells)
    (parameters,) = (cell for cell in cells if "parameters" in cell["metadata"].get("tags", []))
    assert all(" = " in line and "  # " in line for line in parameters["source"])


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize(("name", "way"), EVERY if os.environ.get("MULTISLICE_NB_EVERY_NOTEBOOK") else CHOSEN)
def test_every_cell_runs(name: str, way: str, tmp_path: Path) -> None:
    """It passes, every cell ran, none warned, and nothing is left."""
    path = copied(name, tmp_path)
    said = WAYS[way](path)
    check_cells(path, said)
