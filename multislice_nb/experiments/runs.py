"""The index of notebook runs: a line for each, as a table."""

from __future__ import annotations

import html
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from multislice_nb.experiments import jsonlines

if TYPE_CHECKING:
    import pandas as pd

INDEX = "index.jsonl"
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
        return cls(place, *jsonlines.read(place / INDEX, "run", "status", "parameters", "results"))

    def finished(self) -> frozenset[str]:
        """Names of the runs that ended well."""
        return frozenset(row["run"] for row in self.rows if row["status"] == "ok")

    @property
    def frame(self) -> pd.DataFrame:
        """A row for each run: its parameters and what it recorded are columns of their own.

        A result with the name of a parameter has `result.` before it.
        """
        import pandas as pd

        return pd.DataFrame([_flat(row) for row in self.rows])

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"<Runs {self.folder} runs={len(self)}>"

    def __str__(self) -> str:
        return "\n".join([self._table().to_string(index=False), *self.problems])

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{html.escape(line)}</p>" for line in self.problems)
        return self._table().to_html(index=False, border=0, escape=True) + notes

    def _table(self) -> pd.DataFrame:
        import pandas as pd

        rows = [{name: _text(row.get(name, "")) for name in _SHOWN} for row in self.rows]
        return pd.DataFrame(rows, columns=list(_SHOWN))


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    parameters, results = row["parameters"], row["results"]
    rest = {name: value for name, value in row.items() if name not in {"parameters", "results"}}
    free = {name if name not in parameters else f"result.{name}": value for name, value in results.items()}
    return {**parameters, **free, **rest}


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={one}" for name, one in value.items())
    return f"{value:.1f}" if isinstance(value, float) else str(value)
