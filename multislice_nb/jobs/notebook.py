"""From what ran interactively to a job: a notebook, executed unattended on every worker.

Every worker executes the whole notebook with papermill, as the cells of an attached notebook run on every
worker; the executed copy of each is among the results.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import shlex
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multislice_nb.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from multislice_nb.jobs.job import Job
    from multislice_nb.jobs.submitting import DryRun

__all__ = ["prepared", "submit_notebook"]

_MULTISLICE_CELL = re.compile(r"\s*%%multislice\b[^\n]*(\n|$)")
_MAGIC = re.compile(r"(?m)^\s*(%(multislice|load_ext\s+multislice_nb)\b|%%multislice\b)")
_START = "from multislice_nb.jobs import initialize\n\ninitialize()\n"
_OURS = "multislice-nb"


def prepared(source: Mapping[str, Any], *, only_multislice: bool = True) -> dict[str, Any]:
    """A notebook as its workers execute it.

    Cells that ran on every worker (`%%multislice`) lose that line, since here every cell does; what drove
    the notebook's own side (`%multislice`, `%load_ext multislice_nb`) is left out. A cell that joins the gang
    comes first.

    Args:
        source: The notebook, as a document of nbformat 4.
        only_multislice: Where it has `%%multislice` cells, take only these and the one tagged `parameters`.

    Raises:
        InvalidRequestError: Nothing is left to run.
    """
    import nbformat

    notebook = nbformat.from_dict(json.loads(json.dumps(source)))
    code = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]
    marked = any(_MULTISLICE_CELL.match(cell.source) for cell in code)
    kept = []
    for cell in code:
        shared = _MULTISLICE_CELL.match(cell.source)
        tagged = "parameters" in cell.metadata.get("tags", [])
        if shared:
            cell.source = cell.source[shared.end() :]
        elif (marked and only_multislice and not tagged) or _MAGIC.search(cell.source):
            continue
        cell.outputs, cell.execution_count = [], None
        cell.metadata = {"tags": cell.metadata["tags"]} if "tags" in cell.metadata else {}
        kept.append(cell)
    if not any(cell.source.strip() for cell in kept):
        raise InvalidRequestError(
            "The notebook has no cell to run on the workers.", fix="Write the work into %%multislice cells."
        )
    notebook.cells = [nbformat.v4.new_code_cell(_START), *kept]
    # The same cells are the same job, whenever they ran and whatever names and notes Jupyter has given them since.
    notebook.metadata = {key: notebook.metadata[key] for key in ("kernelspec",) if key in notebook.metadata}
    notebook.nbformat_minor = max(5, notebook.nbformat_minor)
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"
    return dict(notebook)


def submit_notebook(
    name: str,
    notebook: str | Path | Sequence[str] | Sequence[int],
    *,
    parameters: Mapping[str, Any] | None = None,
    folder: str | Path | None = None,
    requirements: Sequence[str] | None = None,
    **options: Any,
) -> Job | DryRun:
    """Execute a notebook, or cells of one, on every worker of new slices, unattended.

    Args:
        name: Names the job.
        notebook: The notebook's file; or numbers of cells that ran in this one, as `[3, 5]` for In[3] and In[5];
            or the sources of cells.
        parameters: Values for the cell tagged `parameters`, as papermill's.
        folder: A folder of code that goes with it.
        requirements: Packages that are needed beside papermill and ipykernel; JAX when None.
        **options: Those of `submit`.

    Raises:
        InvalidRequestError: It is no notebook, there is no such cell, nothing is left to run, or a parameter is
            not one of its own.
    """
    import nbformat

    from multislice_nb.cloud import connect
    from multislice_nb.jobs.submitting import requirements_of, submit

    if isinstance(notebook, str | Path):
        path = Path(notebook).expanduser()
        document = _read(path)
        source = str(path.resolve())
    else:
        sources = [_ran(cell) if isinstance(cell, int) else cell for cell in notebook]
        document = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in sources])
        source = f"{len(sources)} cells"
    given = _as_json(parameters or {})
    ready = prepared(document)
    _check_parameters(ready, parameters or {})
    cloud = options.pop("cloud", None) or connect()
    if requirements is None:
        requirements = requirements_of(Path(folder) if folder else None, tpu=not cloud.is_emulator)
    tools = [f"{tool}=={importlib.metadata.version(tool)}" for tool in ("papermill", "ipykernel")]
    with tempfile.TemporaryDirectory(prefix="multislice_nb-") as work:
        place = Path(work) / "code"
        if folder is not None:
            _copy_code(Path(folder).expanduser(), place)
        place.mkdir(exist_ok=True)
        (place / "notebook.ipynb").write_text(json.dumps(ready), encoding="utf-8")
        return submit(
            name,
            f"exec python3 -m multislice_nb.jobs.execute notebook.ipynb {shlex.quote(given)}",
            folder=place,
            requirements=[*requirements, *tools],
            cloud=cloud,
            source=source,
            **options,
        )


def _read(path: Path) -> Any:
    import nbformat

    try:
        return nbformat.read(path, as_version=4)
    # What nbformat makes of other JSON than a notebook's differs from case to case.
    except (OSError, ValueError, AttributeError, KeyError, TypeError, nbformat.ValidationError) as error:
        told = str(error).partition("\n")[0].rstrip(".")
        raise InvalidRequestError(
            f"{path} cannot be read as a notebook: {told}.", fix="Name an .ipynb file."
        ) from error


def _as_json(parameters: Mapping[str, Any]) -> str:
    try:
        return json.dumps(dict(parameters))
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(
            f"The parameters are not for JSON: {error}.", fix="Give texts, numbers, lists and dictionaries."
        ) from error


def _ran(number: int) -> str:
    """A cell of this notebook as it was written; `In` has what IPython made of it."""
    from IPython import get_ipython

    shell = get_ipython()
    written = shell.history_manager.input_hist_raw if shell is not None else []
    if not 0 < number < len(written):
        raise InvalidRequestError(
            f"No cell In[{number}] was run.", fix="Name cells of this notebook by their In[ ] numbers."
        )
    return str(written[number])


def _copy_code(folder: Path, place: Path) -> None:
    from multislice_nb.jobs.package import pack

    for name in pack(folder).files:
        target = place / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(folder / name, target, follow_symlinks=False)


def _check_parameters(notebook: Mapping[str, Any], parameters: Mapping[str, Any]) -> None:
    """Refuse what papermill would only warn of: a parameter that the notebook does not have."""
    cells = [
        cell["source"]
        for cell in notebook["cells"]
        if "parameters" in cell.get("metadata", {}).get("tags", [])
    ]
    known = set(re.findall(r"(?m)^\s*(\w+)\s*(?::[^=\n]+)?=", "\n".join(cells)))
    strange = sorted(set(parameters) - known)
    if strange:
        raise InvalidRequestError(
            f"The notebook has no parameter {', '.join(strange)}.",
            fix=f"It has {', '.join(sorted(known)) or 'none: tag a cell with `parameters`'}.",
        )
