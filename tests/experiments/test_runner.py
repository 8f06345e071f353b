"""Experiment notebooks run with parameters, through real kernels."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import nbformat
import psutil
import pytest
from nbformat import v4

from multislice_nb.errors import ExperimentError, InvalidRequestError
from multislice_nb.experiments import Runs, notebook, notebooks, run, run_matrix
from multislice_nb.experiments.catalogue import asked_for

if TYPE_CHECKING:
    from pathlib import Path

    from multislice_nb.experiments import NotebookProgress


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
    assert runs.frame.loc[0, "name"] == "99_dividing"
    assert runs.frame.loc[0, "parameter.name"] == 2
    assert str(done.notebook) in str(runs)
    assert str(done.notebook) in runs._repr_html_()
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
    tried = [
        json.loads(line)["parameters"]["bottom"] for line in (folder / "index.jsonl").read_text().splitlines()
    ]
    assert tried == [1, 0, 0]


def test_a_failure_names_cell_and_notebook(small: Path, tmp_path: Path) -> None:
    """A single run that fails raises with the cell, the error and the notebook as far as it came."""
    with pytest.raises(ExperimentError, match="cell 3: ZeroDivisionError") as caught:
        run(small, folder=tmp_path / "runs", progress=False, bottom=0)
    assert "99_dividing.ipynb" in caught.value.fix


def notebook_of(folder: Path, *cells: str) -> Path:
    """A notebook with these code cells, a heading above each."""
    made = [
        cell
        for number, source in enumerate(cells, 1)
        for cell in (v4.new_markdown_cell(f"## Part {number}"), v4.new_code_cell(source))
    ]
    path = folder / "98_parts.ipynb"
    nbformat.write(v4.new_notebook(cells=made, metadata=KERNEL), path)
    return path


def test_progress_tells_run_cell_and_heading(small: Path, tmp_path: Path) -> None:
    """Whoever watches learns which cell of which run is at work and under which heading, and no widget is made."""
    looks: list[NotebookProgress] = []
    run_matrix(small, {"bottom": [1, 2]}, folder=tmp_path / "runs", progress=looks.append)
    last = looks[-1]
    assert (last.cell, last.cells, last.heading, last.run, last.runs) == (4, 4, "Dividing", 2, 2)
    assert str(last).startswith("run 2 of 2 · 99_dividing · cell 4 of 4 · Dividing · ")
    assert {look.milestone for look in looks} == {
        None,
        "run 1 of 2 · 99_dividing · Dividing",
        "run 2 of 2 · 99_dividing · Dividing",
    }


def test_a_kernel_that_dies_is_a_failure_of_its_cell(tmp_path: Path) -> None:
    """A run whose kernel ends by itself is kept as failed, with the cell in which that was."""
    path = notebook_of(tmp_path, "record = 1", "import os; os._exit(3)", "1")
    done = run(path, folder=tmp_path / "runs", progress=False, check=False)
    assert (done.status, done.error) == ("failed", "cell 2: its kernel died")
    assert done.notebook.exists()


def test_an_interrupted_run_ends_its_kernel_and_is_kept(tmp_path: Path) -> None:
    """An interrupt ends the cell and the kernel, and leaves the notebook as far as it came and a line in the index."""
    path = notebook_of(
        tmp_path,
        "import os; from multislice_nb.experiments import record; record(pid=os.getpid())",
        "import time; time.sleep(600)",
    )

    def stop(look: NotebookProgress) -> None:
        if look.cell == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(path, folder=tmp_path / "runs", progress=stop)
    (row,) = Runs.load(tmp_path / "runs").rows
    assert (row["status"], row["error"]) == ("interrupted", "Stopped by hand.")
    assert not psutil.pid_exists(row["results"]["pid"])


def test_a_folder_without_runs_is_named(tmp_path: Path) -> None:
    """Who asks for runs before there are any is told how to get one, not of a file of ours."""
    with pytest.raises(ExperimentError, match="no runs in") as caught:
        Runs.load(tmp_path)
    assert "experiment 00" in caught.value.fix


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
    with pytest.raises(InvalidRequestError, match="cannot be written"):
        run(small, folder=folder, progress=False, bottom=float("nan"))
    with pytest.raises(InvalidRequestError, match="There is no experiment 77"):
        run("77", folder=folder)
    assert not folder.exists()
    with pytest.raises(ExperimentError, match="cannot be written"):
        run(small, folder=small, progress=False)


def test_what_is_read_at_once_is_what_papermill_reads() -> None:
    """The parameters that Tab offers, read from the file alone, are those that a run of the notebook takes."""
    for one in notebooks():
        assert asked_for(one.name).keys() == one.parameters.keys(), one.name
        assert asked_for(one.path) == asked_for(one.name)


def test_shipped_notebooks_are_found_by_number() -> None:
    """The quickstart is found by its number, the beginning of its name and its name, with title and parameters."""
    found = notebook("00")
    assert found == notebook("0") == notebook("00_quick") == notebook("00_quickstart") == notebooks()[0]
    assert found.title.startswith("Quickstart")
    assert {"accelerator_type", "node_count", "strategies", "batch_sizes"} <= set(found.parameters)
