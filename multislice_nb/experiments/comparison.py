"""Two results files side by side: which configurations are faster, by how much, and whether that is more than noise."""

from __future__ import annotations

import dataclasses
import html
from typing import TYPE_CHECKING, Any

from multislice_nb.errors import ExperimentError, InvalidRequestError
from multislice_nb.experiments.results import Results

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import pandas as pd

    from multislice_nb.experiments.results import Row

WHAT = (
    "workload", "embedding", "layers", "heads", "sequence", "vocabulary", "dtype",
    "ici_data", "ici_fsdp", "ici_tensor", "dcn_data", "dcn_fsdp", "dcn_tensor",
    "batch_per_device", "optimizer", "remat", "donate", "accelerator_type", "device_kind", "slices",
)  # fmt: skip
"""Columns that make two rows the same measurement. How often it was timed is not among them."""


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """One configuration in both files.

    Attributes:
        strategy: Its name.
        batch_per_device: Its batch.
        before: Median tokens per second and chip in the first file. Not FLOP/s, which a step that computes more than
            it needs, as with rematerialisation, has more of.
        after: The same in the second.
        p: Chance of step times so different if nothing had changed, corrected for the number of configurations.
        significant: Whether p is at most the level asked for.
    """

    strategy: str
    batch_per_device: int
    before: float
    after: float
    p: float
    significant: bool

    @property
    def ratio(self) -> float:
        """After over before: above 1 is faster."""
        return self.after / self.before

    @property
    def verdict(self) -> str:
        """`faster`, `slower` or `no difference seen`."""
        if not self.significant:
            return "no difference seen"
        return "faster" if self.ratio > 1 else "slower"


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What two results files say of the configurations they share.

    Attributes:
        before: The first file.
        after: The second.
        changes: One for each configuration that both have measured.
        only_before: Labels of those that only the first has.
        only_after: Labels of those that only the second has.
        level: Of significance.
    """

    before: Path
    after: Path
    changes: tuple[Change, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    level: float

    @property
    def frame(self) -> pd.DataFrame:
        """The changes as a table."""
        import pandas as pd

        rows = [
            dataclasses.asdict(one) | {"ratio": one.ratio, "verdict": one.verdict} for one in self.changes
        ]
        names = [field.name for field in dataclasses.fields(Change)]
        return pd.DataFrame(rows, columns=[*names, "ratio", "verdict"])

    @property
    def summary(self) -> str:
        """One sentence."""
        counts = {
            word: sum(one.verdict == word for one in self.changes)
            for word in ("faster", "slower", "no difference seen")
        }
        told = ", ".join(f"{count} {word}" for word, count in counts.items())
        apart = len(self.only_before) + len(self.only_after)
        rest = f"; {apart} are in one file only" if apart else ""
        return f"{self.after.name} against {self.before.name}: {told} (p ≤ {self.level:g}, Holm){rest}."

    def __str__(self) -> str:
        return f"{self._table().to_string(index=False)}\n{self.summary}"

    def _repr_html_(self) -> str:
        return (
            f"{self._table().to_html(index=False, border=0, escape=True)}<p>{html.escape(self.summary)}</p>"
        )

    def _table(self) -> pd.DataFrame:
        frame = self.frame
        forms = {"before": "{:.4g}", "after": "{:.4g}", "p": "{:.2g}", "ratio": "x{:.3f}"}
        for name, form in forms.items():
            frame[name] = [form.format(value) for value in frame[name]]
        order = ["strategy", "batch_per_device", "before", "after", "ratio", "p", "verdict"]
        return frame[order].rename(columns={"before": "tokens/s a chip before"})


def compare(
    before: Results | Path | str,
    after: Results | Path | str,
    *,
    on: Iterable[str] = WHAT,
    level: float = 0.05,
) -> Comparison:
    """Compare two sweeps configuration by configuration.

    Steps of both are compared by the two-sided Mann-Whitney U test on tokens per second and chip, which asks nothing
    of their distribution, and the p values of all configurations are corrected by Holm's method. Steps of one run share that
    run's circumstances (the machines, the neighbours on the network), which no test on them can see: what two runs
    of the same thing differ by is the measure of that.

    Args:
        before: Results, or their file.
        after: Results, or their file.
        on: Columns in which two rows must agree to be the same configuration. Leave out `slices` to compare numbers
            of slices, `accelerator_type`, `device_kind` and the ICI degrees to compare slices of another kind.
        level: Of significance.

    Raises:
        ExperimentError: A file cannot be read, or they share no configuration.
        InvalidRequestError: The level is not between 0 and 1, or rows of a file agree in all columns of `on`.
    """
    if not 0 < level < 1:
        raise InvalidRequestError(f"A level of {level} is no probability.", fix="Give one between 0 and 1.")
    old, new = (one if isinstance(one, Results) else Results.load(one) for one in (before, after))
    columns = tuple(on)
    first, second = _by_columns(old, columns), _by_columns(new, columns)
    shared = [key for key in first if key in second]
    if not shared:
        raise ExperimentError(
            f"{old.path} and {new.path} share no configuration that was measured in both.",
            fix="Compare sweeps of the same strategies and batch sizes, or match on fewer columns.",
        )
    values = _corrected([_p_value(_rates(first[key]), _rates(second[key])) for key in shared])
    return Comparison(
        before=old.path,
        after=new.path,
        changes=tuple(
            Change(
                strategy=first[key]["strategy"],
                batch_per_device=first[key]["batch_per_device"],
                before=_tokens_per_chip(first[key]) / first[key]["step_seconds"],
                after=_tokens_per_chip(second[key]) / second[key]["step_seconds"],
                p=value,
                significant=value <= level,
            )
            for key, value in zip(shared, values, strict=True)
        ),
        only_before=tuple(_label(row) for key, row in first.items() if key not in second),
        only_after=tuple(_label(row) for key, row in second.items() if key not in first),
        level=level,
    )


def _by_columns(results: Results, columns: Sequence[str]) -> dict[tuple[Any, ...], Row]:
    found: dict[tuple[Any, ...], Row] = {}
    for row in results.rows:
        if row["status"] != "ok":
            continue
        key = tuple(row.get(column) for column in columns)
        same = found.get(key)
        if same is not None and len(same["step_seconds_all"]) == len(row["step_seconds_all"]):
            raise InvalidRequestError(
                f"{_label(row)} and {_label(same)} of {results.path} are the same in all columns compared.",
                fix="Compare on more columns.",
            )
        if same is None or len(row["step_seconds_all"]) > len(same["step_seconds_all"]):
            found[key] = row  # of one configuration timed with different counts, the larger count
    return found


def _rates(row: Row) -> list[float]:
    return [_tokens_per_chip(row) / second for second in row["step_seconds_all"]]


def _tokens_per_chip(row: Row) -> float:
    tokens: float = row["tokens_per_slice"] * row["slices"] / row["chips"]
    return tokens


def _p_value(first: Sequence[float], second: Sequence[float]) -> float:
    from scipy import stats  # type: ignore[import-untyped]  # ships no types

    return float(stats.mannwhitneyu(first, second, alternative="two-sided").pvalue)


def _corrected(values: Sequence[float]) -> list[float]:
    """Holm's step-down correction for as many tests as there are values (Scand. J. Statist. 6, 1979)."""
    order = sorted(range(len(values)), key=values.__getitem__)
    corrected = [0.0] * len(values)
    largest = 0.0
    for rank, at in enumerate(order):
        largest = max(largest, min(1.0, (len(values) - rank) * values[at]))
        corrected[at] = largest
    return corrected


def _label(row: Row) -> str:
    return f"{row['strategy']} batch {row['batch_per_device']}"
