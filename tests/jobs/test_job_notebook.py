from __future__ import annotations

from typing import TYPE_CHECKING, Any

import nbformat
import pytest

from multislice_nb import jobs
from multislice_nb.errors import InvalidRequestError
from multislice_nb.jobs.notebook import prepared

if TYPE_CHECKING:
    from pathlib import Path

    from multislice_nb.cloud import Cloud


def notebook(*cells: str, tagged: str = "") -> Any:
    """A notebook of code cells, with a cell of parameters before them."""
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    if tagged:
        made.cells.insert(0, nbformat.v4.new_code_cell(tagged, metadata={"tags": ["parameters"]}))
    return made


def sources(document: dict[str, Any]) -> list[str]:
    """What the workers would run after they have joined the gang."""
    return [cell["source"] for cell in document["cells"]][1:]  # without the one that joins the gang


def test_cells_that_ran_on_every_worker_are_what_the_job_runs() -> None:
    """The notebook's own side stays behind, parameters come along."""
    interactive = notebook(
        "%load_ext multislice_nb",
        "%multislice create demo --accelerator-type v4-16",
        "%%multislice --timeout 60\nimport jax\nprint(steps)",
        "results.plot()",
        "%%multislice",
        tagged="steps = 3",
    )
    assert sources(prepared(interactive)) == ["steps = 3", "import jax\nprint(steps)", ""]


def test_a_plain_notebook_runs_as_it_is() -> None:
    """Without %%multislice cells every cell does, save the magics that drive slices."""
    assert sources(prepared(notebook("%load_ext multislice_nb", "x = 1", "print(x)"))) == [
        "x = 1",
        "print(x)",
    ]


def test_a_notebook_without_work_is_refused() -> None:
    """There would be nothing to run on the workers."""
    with pytest.raises(InvalidRequestError, match="no cell to run"):
        prepared(notebook("%load_ext multislice_nb", "%multislice list"))


def test_the_same_cells_are_the_same_job() -> None:
    """What Jupyter writes beside them at every run (ids, times, outputs, widgets) makes no other one of it."""
    first, again = (notebook("print(steps)", tagged="steps = 3") for _ in range(2))
    again.metadata["widgets"] = {"state": 1}
    again.cells[1].metadata["execution"] = {"iopub.execute_input": "2026-12-01"}
    again.cells[1].outputs = [nbformat.v4.new_output("stream", text="3")]
    assert prepared(first) == prepared(again)
    nbformat.validate(nbformat.from_dict(prepared(first)))
    old = nbformat.from_dict({**first, "nbformat_minor": 4})
    nbformat.validate(nbformat.from_dict(prepared(old)))


@pytest.mark.parametrize("content", ["[]", "{", '{"nbformat": 9}', '{"cells": [3], "nbformat": 4}', "\xff"])
def test_what_is_no_notebook_is_refused(cloud: Cloud, tmp_path: Path, content: str) -> None:
    """Whatever is in the file, it is told by name."""
    path = tmp_path / "work.ipynb"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(InvalidRequestError, match=r"work\.ipynb cannot be read as a notebook"):
        jobs.submit_notebook("broken", path, accelerator_type="v4-8", cloud=cloud, store=tmp_path / "store")


def test_parameters_that_are_no_json_are_refused(cloud: Cloud, tmp_path: Path) -> None:
    """They go along as JSON."""
    options: Any = {"accelerator_type": "v4-8", "cloud": cloud, "store": tmp_path / "store"}
    with pytest.raises(InvalidRequestError, match="not for JSON"):
        jobs.submit_notebook("broken", ["print(steps)"], parameters={"steps": {3}}, **options)


def test_unknown_parameters_are_refused(cloud: Cloud, tmp_path: Path) -> None:
    """Papermill would only warn, and the run would be another one than was meant."""
    path = tmp_path / "work.ipynb"
    nbformat.write(notebook("print(steps)", tagged="steps: int = 3\nrate = 0.1"), path)
    with pytest.raises(InvalidRequestError, match="no parameter stpes") as caught:
        jobs.submit_notebook(
            "typo",
            path,
            parameters={"stpes": 4},
            accelerator_type="v4-8",
            cloud=cloud,
            store=tmp_path / "store",
        )
    assert "rate, steps" in str(caught.value)


def test_a_notebook_runs_on_every_worker_with_its_parameters(cloud: Cloud, tmp_path: Path, look: Any) -> None:
    """Its cells form one gang; each worker's executed copy is among the results."""
    cells = [
        "%%multislice\nimport jax\nprint(steps, jax.process_index(), jax.device_count())",
        "%%multislice\nfloat(jax.jit(lambda: jax.numpy.ones(3).sum())())",
    ]
    path = tmp_path / "work.ipynb"
    nbformat.write(notebook(*cells, tagged="steps = 3"), path)
    job = jobs.submit_notebook(
        "papers",
        path,
        parameters={"steps": 5},
        accelerator_type="v4-8",
        node_count=2,
        cloud=cloud,
        store=tmp_path / "store",
    )
    assert isinstance(job, jobs.Job)
    status = job.wait(timeout=120)
    assert status.state == "succeeded", look.told(job)
    executed = [nbformat.read(path, as_version=4) for path in job.results(tmp_path / "results")]
    assert len(executed) == 2
    for rank, document in enumerate(executed):
        outputs = [output for cell in document["cells"] for output in cell["outputs"]]
        said = "".join(output.get("text", "") for output in outputs if output.get("name") == "stdout")
        assert f"5 {rank} 8" in said
        assert outputs[-1]["data"]["text/plain"] == "3.0"
