"""Numbers that a notebook leaves behind for the index of runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from multislice_nb.errors import InvalidRequestError

if TYPE_CHECKING:
    from pathlib import Path

MIME = "application/vnd.multislice-nb.record+json"


def record(**values: Any) -> None:
    """Called in a notebook: leave values as results of this run.

    They are shown as text, kept in the executed notebook, and become columns in the index of runs. A name recorded
    twice has the later value.

    Raises:
        InvalidRequestError: A value is not a number, text, or a list or dictionary of them.
    """
    from IPython.display import display

    try:
        plain = json.loads(json.dumps(values, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(
            f"A result cannot be recorded: {error}.",
            fix="Record numbers, text, and lists and dictionaries of them.",
        ) from error
    text = "\n".join(f"{name}: {value}" for name, value in plain.items())
    display({"text/plain": text, MIME: plain}, raw=True)


def recorded(path: Path) -> dict[str, Any]:
    """What an executed notebook recorded; nothing if it was not written."""
    if not path.exists():
        return {}
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    found: dict[str, Any] = {}
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            found |= output.get("data", {}).get(MIME, {})
    return found
