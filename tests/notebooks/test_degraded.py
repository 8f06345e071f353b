"""What a notebook shows where something is missing: a page, ipywidgets, libtpu."""

from __future__ import annotations

from typing import TYPE_CHECKING

import nbformat
import pytest
from nbformat import v4

if TYPE_CHECKING:
    from pathlib import Path

    from tests.notebooks.ways import WAYS, check_cells, code_cells, copied, executed_without
else:
    from ways import WAYS, check_cells, code_cells, copied, executed_without

KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}

CELLS = (
    "%load_ext multislice_nb\n%multislice connect",
    "%multislice panel",
    "%multislice list",
    "%multislice recommend --accelerator-type v4-128 --slices 2 --parameters 8e9 --tokens-per-slice 400000",
    "%multislice experiment",
    "import multislice_nb as ms\nms.plot_intensity('v4')",
)
"""Each shows something with several forms."""


@pytest.fixture(scope="module")
def emulator_home(emulator_apart: Path) -> Path:
    """A panel shows all that there is."""
    return emulator_apart


@pytest.fixture
def shown(tmp_path: Path) -> Path:
    """A notebook that shows a panel and objects of every kind that needs no slice."""
    path = tmp_path / "shown.ipynb"
    content = v4.new_notebook(cells=[v4.new_code_cell(cell) for cell in CELLS], metadata=KERNEL)
    nbformat.write(content, path)
    return path


@pytest.mark.usefixtures("nothing_left")
def test_without_ipywidgets_everything_has_html_and_text(shown: Path) -> None:
    """With ipywidgets not installed the panel is a table, and every object is what it is elsewhere."""
    check_cells(shown, WAYS["without_ipywidgets"](shown))
    _, panel, *others = (cell["outputs"][-1]["data"] for cell in code_cells(shown))
    for one in (panel, *others[:-1]):
        assert {"text/plain", "text/html"} == set(one)
    assert "No queued resources." in "".join(panel["text/plain"])
    assert {"text/plain", "image/png"} == set(others[-1])


@pytest.mark.usefixtures("nothing_left")
def test_at_ipythons_prompt_everything_is_text_to_read(shown: Path) -> None:
    """In a terminal the panel is a table of text and objects say what is in them, not where they are in memory."""
    said = WAYS["ipython"](shown)
    check_cells(shown, said)
    assert said.count("No queued resources.") == 2
    assert "64-way FSDP + 2-way data over DCN" in said
    assert "05_data_parallelism" in said
    assert " object at 0x" not in said


@pytest.mark.usefixtures("nothing_left")
def test_will_it_fit_says_what_it_does_not_know(tmp_path: Path) -> None:
    """Without libtpu the lesson on memory goes through on closed forms, and says so."""
    path = copied("06_will_it_fit", tmp_path)
    check_cells(path, executed_without(path, "libtpu"))
    said = str([cell["outputs"] for cell in code_cells(path)])
    assert "libtpu is not installed" in said
    assert "closed form needs" in said
