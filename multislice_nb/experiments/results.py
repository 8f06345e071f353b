"""Results of a sweep: a file of JSON Lines, one measurement a line, and what is made of it.

Each row is on disk before the next is measured, and is a table row by itself: what was measured, where, with what,
when, and how it ended. Figures and tables are made from the file and from nothing else.
"""

from __future__ import annotations

import html
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from multislice_nb._texts import grouped
from multislice_nb.experiments import jsonlines

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pandas as pd

    from multislice_nb.plotting import Chart

Row: TypeAlias = "dict[str, Any]"

FINAL = frozenset({"ok", "oom", "skipped"})
"""Ways in which a measurement ends that are not tried again: the others are failures of the workers."""

_SHOWN = {
    "strategy": "strategy",
    "batch_per_device": "batch per device",
    "tflops_per_chip": "TFLOP/s per chip",
    "step_seconds": "step (s)",
    "spread": "spread",
    "operational_intensity": "FLOPs per DCN bit",
    "status": "status",
}


class Results:
    """The rows of one results file.

    Attributes:
        path: The file.
        rows: One dictionary per measurement, in the order measured. Of a measurement that was tried again only the
            last try is kept here; the file holds them all.
        problems: Lines of the file that could not be read, as sentences.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.problems: tuple[str, ...] = ()
        self._rows: dict[str, Row] = {}

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read a results file.

        A line that is not a row, such as one cut short when the machine went down, is reported in `problems` and
        the others are kept.

        Raises:
            ExperimentError: There is no such file, or it cannot be read.
        """
        results = cls(path)
        rows, results.problems = jsonlines.read(results.path, "key", "status")
        for row in rows:
            results._keep(row)
        return results

    def _keep(self, row: Row) -> None:
        # A second try goes to the end, where it was measured.
        self._rows.pop(str(row["key"]), None)
        self._rows[str(row["key"])] = row

    def append(self, row: Mapping[str, Any]) -> None:
        """Add a row to the file, and have it on disk before returning.

        Raises:
            ExperimentError: The file cannot be written.
        """
        jsonlines.append(self.path, row)
        self._keep(dict(row))

    @property
    def rows(self) -> list[Row]:
        """One dictionary per measurement."""
        return list(self._rows.values())

    def row(self, key: str) -> Row | None:
        """The row of a measurement; None if it is not in the file."""
        return self._rows.get(key)

    def ended(self, key: str) -> bool:
        """Whether a measurement is in the file and need not be tried again."""
        return key in self._rows and self._rows[key]["status"] in FINAL

    @property
    def frame(self) -> pd.DataFrame:
        """The rows as a table, with a numbered index; columns that a row lacks are empty."""
        import pandas as pd

        rows = [{name: value for name, value in row.items() if name != "key"} for row in self.rows]
        return pd.DataFrame(rows) if rows else pd.DataFrame(columns=list(_SHOWN))

    def plot_tflops(self, **options: Any) -> Chart:
        """TFLOP/s per chip against batch size, a line for each strategy. Options are those of `plotting.tflops`."""
        from multislice_nb import plotting

        return plotting.tflops(self.frame, **options)

    def plot_intensity(self, **options: Any) -> Chart:
        """Operational intensity against batch size. Options are those of `plotting.intensity`."""
        from multislice_nb import plotting

        return plotting.intensity(self.frame, **options)

    def plot_scaling(self, **options: Any) -> Chart:
        """TFLOP/s of all slices against their number. Options are those of `plotting.weak_scaling`."""
        from multislice_nb import plotting

        return plotting.weak_scaling(self.frame, **options)

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"<Results {self.path} rows={len(self)}>"

    def __str__(self) -> str:
        table = self._table().to_string(index=False, na_rep="")
        return "\n".join([table if self._rows else "No measurements yet.", self._summary(), *self.problems])

    def _repr_html_(self) -> str:
        table = self._table().to_html(index=False, na_rep="", border=0, escape=True)
        notes = "".join(f"<p>{html.escape(line)}</p>" for line in (self._summary(), *self.problems))
        return f"{table if self._rows else ''}{notes}"

    def _table(self) -> pd.DataFrame:
        import pandas as pd

        from multislice_nb.plotting.apart import varied

        # Rows of several models or trainings would otherwise look like the same one measured twice.
        differing = varied(self.frame)
        first, *others = _SHOWN
        frame = self.frame.reindex(columns=[first, *differing, *others])
        forms: dict[str, Callable[[float], str]] = {
            "tflops_per_chip": "{:.4g}".format,
            "step_seconds": "{:.4g}".format,
            "spread": "±{:.1%}".format,
        }
        if frame["operational_intensity"].isna().all():  # a single slice sends nothing over DCN
            frame = frame.drop(columns="operational_intensity")
        else:
            forms["operational_intensity"] = grouped
        for name, form in forms.items():
            frame[name] = ["" if pd.isna(value) else form(value) for value in frame[name]]
        return frame.rename(columns=_SHOWN)

    def _summary(self) -> str:
        counts: dict[str, int] = {}
        for row in self.rows:
            counts[row["status"]] = counts.get(row["status"], 0) + 1
        told = ", ".join(f"{count} {status}" for status, count in counts.items())
        return f"{len(self)} measurements{f' ({told})' if told else ''} in {self.path}"
