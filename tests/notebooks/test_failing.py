"""What is left of a notebook that fails."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import nbformat
import pytest
from nbformat import v4

if TYPE_CHECKING:
    from pathlib import Path

    from tests.notebooks.ways import WAYS, copied
else:
    from ways import WAYS, copied

PATIENCE = 60
"""Seconds for a deletion that the ending kernel has asked for."""


@pytest.mark.usefixtures("nothing_left")
def test_a_notebook_that_fails_gives_its_slices_back(tmp_path: Path) -> None:
    """A lesson that fails after it has attached leaves no slice, since they go with its kernel."""
    import multislice_nb as ms

    path = copied("08_profiling", tmp_path, {"name": "failing"})
    content = nbformat.read(path, as_version=4)
    attached = next(n for n, cell in enumerate(content.cells) if "multislice attach" in cell.source)
    content.cells[attached + 1 :] = [v4.new_code_cell("len(cluster.workers) / 0")]
    nbformat.write(content, path)
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        WAYS["nbclient"](path)
    limit = time.monotonic() + PATIENCE
    while "failing" in {one.name for one in ms.connect(emulator=True).list()}:
        assert time.monotonic() < limit, "the slices stayed"
        time.sleep(0.2)
