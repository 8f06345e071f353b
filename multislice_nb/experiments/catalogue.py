"""The experiment notebooks: what there is, what each may be asked, and where they are.

A notebook's first code cell with the tag `parameters` holds what may be asked, with defaults, as papermill has it.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib.resources
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multislice_nb._texts import did_you_mean
from multislice_nb.errors import ExperimentError, InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


_DIGITS = 2
"""With which the name of an experiment begins."""


@dataclasses.dataclass(frozen=True, slots=True)
class Notebook:
    """One experiment.

    Attributes:
        path: The file.
        title: Its first heading.
        parameters: What may be asked: names, and their defaults as they are written.
    """

    path: Path
    title: str
    parameters: Mapping[str, str]

    @property
    def name(self) -> str:
        """Its file name without the ending, as in `03_sharding_ici`."""
        return self.path.stem

    def check(self, given: Mapping[str, Any]) -> None:
        """Refuse what it cannot be asked.

        Raises:
            InvalidRequestError: A parameter that it does not have.
        """
        faults = [
            (
                f"{self.name} has no parameter {name}.{_near(name, self.parameters)}",
                f"It has {', '.join(self.parameters)}.",
            )
            for name in given
            if name not in self.parameters
        ]
        if faults:
            raise InvalidRequestError.of_faults(self.name, faults)


def notebooks() -> tuple[Notebook, ...]:
    """All experiments, in order."""
    return tuple(_read(path) for path in sorted(folder().glob("[0-9]*.ipynb")))


def notebook(name: str | Path) -> Notebook:
    """An experiment by its number, its name or its path.

    Args:
        name: A number, as in `03` or `3`, the beginning of a name, or the path of a notebook of your own.

    Raises:
        InvalidRequestError: There is no such notebook, or the name means several.
    """
    return _read(_found(name))


def asked_for(name: str | Path) -> dict[str, str]:
    """What an experiment may be asked, with its defaults as they are written.

    It is `notebook(name).parameters` read from the file alone, at once: what papermill needs to be imported
    would be felt between a key and what it completes.

    Raises:
        InvalidRequestError: As `notebook`.
    """
    try:
        cells = json.loads(_found(name).read_bytes())["cells"]
        tagged = (cell for cell in cells if "parameters" in cell.get("metadata", {}).get("tags", ()))
        tree = ast.parse("".join(next(tagged, {"source": ""})["source"]))
    except (OSError, ValueError, KeyError, SyntaxError) as error:
        raise InvalidRequestError(
            f"{name} cannot be read as a notebook: {error}",
            fix="Give a notebook that Jupyter saved, with a cell tagged `parameters`.",
        ) from error
    return {name: ast.unparse(value) for name, value in _assigned(tree)}


def _assigned(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for line in tree.body:
        targets = line.targets if isinstance(line, ast.Assign) else [getattr(line, "target", None)]
        value = getattr(line, "value", None)
        if isinstance(value, ast.expr):
            yield from ((one.id, value) for one in targets if isinstance(one, ast.Name))


def _found(name: str | Path) -> Path:
    """The file of an experiment."""
    path = Path(str(name))
    if path.suffix == ".ipynb" and path.exists():
        return path
    known = [path.stem for path in sorted(folder().glob("[0-9]*.ipynb"))]
    wanted = path.stem.lower()
    beginning = wanted.zfill(_DIGITS) if wanted.isdigit() else wanted
    found = [one for one in known if beginning and one.startswith(beginning)]
    found = [wanted] if wanted in found else found
    if len(found) != 1:
        raise InvalidRequestError(
            f"There is no experiment {name}.{_near(wanted, known)}"
            if not found
            else f"{name} means {' and '.join(found)}.",
            fix=f"Choose from {', '.join(known)}.",
        )
    return folder() / f"{found[0]}.ipynb"


def headings(markdown: str) -> list[str]:
    """The headings of a cell, without their marks."""
    return re.findall(r"(?m)^#{1,6} +(.+?) *$", markdown)


@functools.cache
def folder() -> Path:
    """Where the notebooks are: inside the package when installed, beside it in a checkout.

    Raises:
        ExperimentError: They are in neither place.
    """
    package = Path(str(importlib.resources.files("multislice_nb")))
    for place in (package / "notebooks", package.parent / "notebooks"):
        if any(place.glob("[0-9]*.ipynb")):
            return place
    raise ExperimentError("The experiment notebooks are not there.", fix="Install multislice_nb again.")


def _read(path: Path) -> Notebook:
    import nbformat
    import papermill

    try:
        content = nbformat.read(path, as_version=4)
        inferred = papermill.inspect_notebook(str(path))
    except (OSError, ValueError, nbformat.ValidationError) as error:
        raise InvalidRequestError(
            f"{path} cannot be run as a notebook: {error}", fix="Save it with a Python kernel chosen."
        ) from error
    titles = (
        title for cell in content.cells if cell.cell_type == "markdown" for title in headings(cell.source)
    )
    defaults = {name: str(one["default"]) for name, one in inferred.items()}
    return Notebook(path=path, title=next(titles, path.stem), parameters=defaults)


def _near(word: str, known: Any) -> str:
    return f" {did_you_mean(word, known, cutoff=0.5)}".rstrip()
