"""Experiment notebooks run with parameters, through real kernels."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import nbformat
import pytest
from nbformat import v4

from multislice_nb.errors import ExperimentError, InvalidRequestError
from multislice_nb.experiments import Runs, notebook, notebooks, run, run_matrix

if TYPE_CHECKING:
    from pathlib import Path


KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A notebook that divides, records what came of it, and leaves a file."""
    cells = [
        v4.new_markdown_cell("Before\n# Dividing\nmore"),
        v4.new_code_cell('top = 6\nbottom = 3\nname = 1\nlabel = "<b>x"', metadata={"tags": ["parameters"]}),
        v4.new_code_cell(
            "from multislice_nb.experiments import record\n"
            "record(quotient=top / bottom, label=label + '!')\n"
            "open('left.txt', 'w').write(label)"
        ),
        v4.new_code_cell("record(last=True)"),
    ]
    path = tmp_path / "99_dividing.ipynb"
    nbformat.write(v4.new_notebook(cells=cells, metadata=KERNEL), path)
    return path


def test_a_run_keeps_its_notebook_results_and_files(small: Path, tmp_path: Path) -> None:
    """A run has a folder of its own with the executed notebook and its files, and a line with its results."""
    folder = tmp_path / "runs"
    done = run(small, folder=folder, progress=False, bottom=4, name=2)
    assert (done.status, done.results) == ("ok", {"quotient": 1.5, "label": "<b>x!", "last": True})
    assert done.notebook.parent.parent == folder
    assert (done.notebook.parent / "left.txt").read_text() == "<b>x"
    again = run(small, {"name": 2, "bottom": 4}, folder=folder, progress=False)
    assert again.notebook == done.notebook
    runs = Runs.load(folder)
    assert len(runs) == 1
    assert len((folder / "index.jsonl").read_text().splitlines()) == 2
    assert runs.frame.loc[0, "quotient"] == 1.5
    assert runs.frame.loc[0, "bottom"] == 4
    assert "<b>" not in runs._repr_html_()


def test_a_matrix_goes_on_past_failures_and_where_it_stopped(small: Path, tmp_path: Path) -> None:
    """Every combination has its run, a failed one with its notebook and cell, and only those are run again."""
    folder = tmp_path / "runs"
    runs = run_matrix(small, {"bottom": [1, 0]}, folder=folder, progress=False)
    good, bad = runs.rows
    assert (good["status"], good["results"]["quotient"]) == ("ok", 6.0)
    assert (bad["status"], bad["results"]) == ("failed", {})
    assert "ZeroDivisionError" in bad["error"]
    assert "ZeroDivisionError" in (tmp_path / bad["notebook"]).read_text()
    run_matrix(small, {"bottom": [1, 0]}, folder=folder, progress=False)
    tried = [json.loads(line)["parameters"]["bottom"] for line in (folder / "index.jsonl").open()]
    assert tried == [1, 0, 0]


def test_a_failure_names_cell_and_notebook(small: Path, tmp_path: Path) -> None:
    """A single run that fails raises with the cell, the error and the notebook as far as it came."""
    with pytest.raises(ExperimentError, match="cell 3: ZeroDivisionError") as caught:
        run(small, folder=tmp_path / "runs", progress=False, bottom=0)
    assert "99_dividing.ipynb" in caught.value.fix


def test_unknown_parameters_and_notebooks_are_refused(small: Path, tmp_path: Path) -> None:
    """A parameter or notebook that is not there is refused with the nearest, and nothing runs."""
    folder = tmp_path / "runs"
    with pytest.raises(InvalidRequestError, match="Did you mean bottom"):
        run(small, folder=folder, progress=False, botom=2)
    with pytest.raises(InvalidRequestError, match="Did you mean bottom"):
        run_matrix(small, {"botom": [2]}, folder=folder)
    with pytest.raises(InvalidRequestError, match="bottom has no values"):
        run_matrix(small, {"bottom": []}, folder=folder)
    with pytest.raises(InvalidRequestError, match="cannot be written"):
        run(small, folder=folder, progress=False, bottom={1, 2})
    with pytest.raises(InvalidRequestError, match="There is no experiment 77"):
        run("77", folder=folder)
    assert not folder.exists()


def test_shipped_notebooks_are_found_by_number() -> None:
    """The quickstart is found by its number and its name, with its title and parameters."""
    found = notebook("00")
    assert found == notebook("00_quickstart") == notebooks()[0]
    assert found.title.startswith("Quickstart")
    assert {"accelerator_type", "node_count", "strategies", "batch_sizes"} <= set(found.parameters)
