"""The ways in which people run a notebook, each in a process of its own, and what has to be true after it.

A way takes a notebook without outputs and runs all of it in the folder where it lies. Where it leaves an executed
notebook, `check_cells` looks at that; plain IPython leaves what it printed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["FOLDER", "NOTEBOOKS", "SMALL", "WAYS", "check_cells", "code_cells", "copied", "executed_without"]

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = tuple(sorted(path.stem for path in FOLDER.glob("*.ipynb")))
DEADLINE = 500
"""Seconds for a notebook."""

SMALL: Mapping[str, Mapping[str, Any]] = {
    "00_quickstart": {"strategies": ["fsdp", "tensor"], "batch_sizes": [32, 64]},
    "03_sharding_over_ici": {"batch_sizes": [64, 128], "steps": 3},
    "04_sharding_over_dcn": {"slice_counts": [1, 2], "steps": 3},
    "06_will_it_fit": {
        "strategies": ["fsdp", "tensor"],
        "batches": [131072],
        "embedding": 1024,
        "layers": 1,
        "resolution": 1.0,
    },
    "07_unattended_training": {"steps": 20},
}
"""Parameters with which a notebook says the same in less time."""

_JUPYTER_EXECUTE = ("-c", "from nbclient.cli import main; main()", "--inplace")

# IPython runs a file with its own shell at hand; what it displays is what somebody at its prompt would see.
_AT_THE_PROMPT = """
def _run_all():  # in a function: names at the prompt are the notebook's
    import json, sys
    from IPython import get_ipython

    cells = json.load(open(sys.argv[1]))["cells"]
    code = [source for one in cells if one["cell_type"] == "code" and (source := "".join(one["source"]))]
    for source in code:
        get_ipython().run_cell(source, store_history=True).raise_error()
    print("ran", len(code), "of", len(code), "cells")

_run_all()
"""

_WITHOUT = """
import sys
from importlib.machinery import PathFinder

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in {names} else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Without
"""


def code_cells(path: Path) -> list[dict[str, Any]]:
    """A notebook's code cells that hold something."""
    cells: list[dict[str, Any]] = json.loads(path.read_text())["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code" and "".join(cell["source"]).strip()]


def copied(name: str, folder: Path, parameters: Mapping[str, Any] | None = None) -> Path:
    """A copy of a committed notebook with parameters in place, those of `SMALL` if none are given."""
    chosen = SMALL.get(name, {}) if parameters is None else parameters
    content = load_notebook_node(str(FOLDER / f"{name}.ipynb"))
    if chosen:
        content = parameterize_notebook(content, dict(chosen), kernel_name="python3")
    path = folder / f"{name}.ipynb"
    nbformat.write(content, path)
    return path


def nbmake(path: Path) -> str:
    """`pytest --nbmake`."""
    options = ["-q", "-p", "no:cacheprovider", "--nbmake", "--overwrite", f"--nbmake-timeout={DEADLINE}"]
    return _run(path, "-m", "pytest", *options, f"--rootdir={path.parent}", "-c", os.devnull, str(path))


def papermill(path: Path) -> str:
    """`papermill in.ipynb out.ipynb`."""
    return _run(path, "-m", "papermill", "--no-progress-bar", str(path), str(path))


def nbclient(path: Path) -> str:
    """`jupyter execute`."""
    return _run(path, *_JUPYTER_EXECUTE, str(path))


def without_ipywidgets(path: Path) -> str:
    """`jupyter execute` where nobody has installed ipywidgets."""
    return executed_without(path, "ipywidgets")


def executed_without(path: Path, *names: str) -> str:
    """`jupyter execute` where packages are not installed."""
    environment = _without(path.parent, *names)
    return _run(path, *_JUPYTER_EXECUTE, str(path), environment=environment)


def ipython(path: Path) -> str:
    """Plain IPython in a terminal."""
    driver = path.parent / "at_the_prompt.py"
    driver.write_text(_AT_THE_PROMPT)
    history = "--HistoryManager.enabled=False"
    return _run(
        path, "-m", "IPython", "--no-banner", "--colors=NoColor", history, str(driver), "--", str(path)
    )


WAYS: Mapping[str, Callable[[Path], str]] = {
    "nbmake": nbmake,
    "papermill": papermill,
    "nbclient": nbclient,
    "ipython": ipython,
    "without_ipywidgets": without_ipywidgets,
}


def check_cells(path: Path, said: str) -> None:
    """Every code cell ran, which not every way sees to by itself, and none warned, failed or made a widget."""
    cells = code_cells(path)
    if not any(cell["execution_count"] for cell in cells):
        assert f"ran {len(cells)} of {len(cells)} cells" in said
        assert "\nTraceback" not in said  # one that a lesson shows is indented
        assert "Warning" not in said
        return
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert not [output for output in outputs if "UsageError" in str(output)]
    assert not [output for output in outputs if output.get("name") == "stderr" and not _is_note(output)]
    assert not [output for output in outputs if "widget-view" in str(output.get("data", {}).keys())]


def _is_note(output: Mapping[str, Any]) -> bool:
    """Whether it is a remark of ours, made for the reader."""
    return all(line.startswith("Note: ") for line in "".join(output["text"]).splitlines())


def _without(folder: Path, *names: str) -> dict[str, str]:
    """An environment in which packages are not installed, as far as any Python in it can tell."""
    place = folder / "without"
    place.mkdir()
    (place / "sitecustomize.py").write_text(_WITHOUT.format(names=set(names)))
    environment = os.environ | {"PYTHONPATH": str(place)}
    for name in names:
        program = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({name!r}) is not None)"
        assert subprocess.run([sys.executable, "-c", program], env=environment, check=False).returncode == 0
    return environment


def _run(path: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=path.parent,
        env=None if environment is None else dict(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    return done.stdout + done.stderr
