"""The index of notebook runs: a line for each, as a table."""

from __future__ import annotations

import html
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from multislice_nb.cloud.display import html_table, shouted, text_table
from multislice_nb.errors import ExperimentError
from multislice_nb.experiments import jsonlines

if TYPE_CHECKING:
    import pandas as pd

INDEX = "index.jsonl"
_WIDTH = 72
_SHOWN = ("name", "parameters", "status", "seconds", "results", "error", "notebook")


class Runs:
    """All runs in a folder, oldest first; of a run that was repeated, the last.

    Attributes:
        folder: Where they are.
        rows: One dictionary for each.
        problems: Lines of the index that could not be read, as sentences.
    """

    def __init__(self, folder: Path, rows: list[dict[str, Any]], problems: tuple[str, ...] = ()) -> None:
        self.folder = folder
        latest = {row["run"]: row for row in rows}
        self.rows = sorted(latest.values(), key=rows.index)
        self.problems = problems

    @classmethod
    def load(cls, folder: Path | str = "runs") -> Self:
        """Read the index of a folder.

        Raises:
            ExperimentError: There is none.
        """
        place = Path(folder)
        if not (place / INDEX).exists():
            raise ExperimentError(
                f"There are no runs in {place}.",
                fix="Run a notebook first, as with %multislice experiment 00, or name the folder of its runs.",
            )
        return cls(place, *jsonlines.read(place / INDEX, "run", "status", "parameters", "results"))

    def finished(self) -> frozenset[str]:
        """Names of the runs that ended well."""
        return frozenset(row["run"] for row in self.rows if row["status"] == "ok")

    @property
    def frame(self) -> pd.DataFrame:
        """A row for each run: its parameters and what it recorded are columns of their own.

        One with the name of another column has `parameter.` or `result.` before it.
        """
        import pandas as pd

        return pd.DataFrame([_flat(row) for row in self.rows])

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"<Runs {self.folder} runs={len(self)}>"

    def __str__(self) -> str:
        rows = [
            [text if name == "notebook" else _short(text) for name, text in zip(_SHOWN, row, strict=True)]
            for row in self._cells()
        ]
        return "\n".join([text_table(shouted(_SHOWN), rows), *self.problems])

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{html.escape(line)}</p>" for line in self.problems)
        return html_table(_SHOWN, self._cells()) + notes

    def _cells(self) -> list[list[str]]:
        return [[_text(row.get(name, "")) for name in _SHOWN] for row in self.rows]


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    parameters, results = row["parameters"], row["results"]
    own = {name: value for name, value in row.items() if name not in {"parameters", "results"}}
    asked = {name if name not in own else f"parameter.{name}": value for name, value in parameters.items()}
    taken = own.keys() | asked.keys()
    found = {name if name not in taken else f"result.{name}": value for name, value in results.items()}
    first: dict[str, Any] = {name: own.pop(name) for name in ("name", "status") if name in own}
    return {**first, **asked, **found, **own}


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={_text(one)}" for name, one in value.items())
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _short(text: str) -> str:
    """So much of it that a table stays readable in a terminal: of an error its first line."""
    line, *more = text.splitlines() or [""]
    cut = line if len(line) <= _WIDTH else line[:_WIDTH]
    return cut + ("…" if more or cut != line else "")
