"""Results files: what is kept, what is reported, how it is shown."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multislice_nb.errors import ExperimentError
from multislice_nb.experiments import Results

if TYPE_CHECKING:
    from pathlib import Path


def row(key: str, status: str = "ok", **more: Any) -> dict[str, Any]:
    """A small row."""
    times = {"step_seconds": 0.5, "spread": 0.01, "tflops_per_chip": 1.5} if status == "ok" else {}
    return {"key": key, "strategy": "fsdp", "batch_per_device": 8, "status": status, **times, **more}


def test_half_written_last_line_is_reported_and_the_rest_kept(tmp_path: Path) -> None:
    """A line cut short costs only itself, and the next row does not stick to it."""
    path = tmp_path / "rows.jsonl"
    results = Results(path)
    results.append(row("a"))
    results.append(row("b"))
    path.write_bytes(path.read_bytes()[:-20])
    loaded = Results.load(path)
    assert [one["key"] for one in loaded.rows] == ["a"]
    assert "Line 2 of rows.jsonl" in loaded.problems[0]
    assert loaded.problems[0] in str(loaded)
    loaded.append(row("c"))
    assert [one["key"] for one in Results.load(path).rows] == ["a", "c"]


@given(cut=st.integers(0, 400))
def test_any_cut_keeps_all_whole_lines(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    """Wherever a file ends, the lines before are read and a row added then is read too."""
    path = tmp_path_factory.mktemp("cut") / "rows.jsonl"
    results = Results(path)
    for key in "abc":
        results.append(row(key))
    whole = path.read_bytes()
    path.write_bytes(whole[: min(cut, len(whole))])
    kept = path.read_bytes().count(b"\n")
    loaded = Results.load(path)
    assert kept <= len(loaded) <= kept + 1
    loaded.append(row("z"))
    assert [one["key"] for one in Results.load(path).rows] == [one["key"] for one in loaded.rows]


def test_lines_that_are_no_rows_are_reported(tmp_path: Path) -> None:
    """JSON that is not a row, and text that is not JSON, are named by line."""
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(["[1]", "7", '{"status": "ok"}', "junk", json.dumps(row("a")), ""]))
    loaded = Results.load(path)
    assert len(loaded) == 1
    assert [problem.split(" of ")[0] for problem in loaded.problems] == [
        "Line 1",
        "Line 2",
        "Line 3",
        "Line 4",
    ]


def test_second_try_replaces_the_first(tmp_path: Path) -> None:
    """Of a measurement that was tried twice the last try counts, and the file has both."""
    results = Results(tmp_path / "r")
    results.append(row("a", "lost"))
    assert not results.ended("a")
    results.append(row("a"))
    assert results.ended("a")
    assert [one["status"] for one in Results.load(tmp_path / "r").rows] == ["ok"]
    assert len((tmp_path / "r").read_text().splitlines()) == 2


def test_missing_file_says_what_to_do(tmp_path: Path) -> None:
    """A file that is not there is an error with its path."""
    with pytest.raises(ExperimentError, match=r"none\.jsonl"):
        Results.load(tmp_path / "none.jsonl")


def test_markup_in_a_file_is_shown_as_text(tmp_path: Path) -> None:
    """Text of a results file is escaped in HTML, in cells, summary and problems."""
    path = tmp_path / "<b>r"
    results = Results(path)
    results.append(row("a", strategy="<script>alert(1)</script>"))
    path.write_text(path.read_text() + "<img src=x onerror=alert(1)>\n")
    markup = Results.load(path)._repr_html_()
    assert "<script" not in markup
    assert "<img" not in markup
    assert "<b>" not in markup
    assert "&lt;script&gt;" in markup


def test_forms_of_no_rows_and_of_failures(tmp_path: Path) -> None:
    """Nothing measured yet, and rows without times, have readable forms."""
    results = Results(tmp_path / "r")
    assert "No measurements yet" in str(results)
    assert results._repr_html_()
    assert "strategy" in results.frame.columns
    results.append(row("a", "oom"))
    assert "1 oom" in str(results)
    assert "nan" not in str(results).lower()
    assert "DCN" not in str(results)  # a column without a number is left out
    assert repr(results) == f"<Results {tmp_path / 'r'} rows=1>"


def test_rows_of_two_models_say_which(tmp_path: Path) -> None:
    """A file with rows of two models names in its table what they differ in, and nothing else."""
    results = Results(tmp_path / "r")
    results.append(row("a", embedding=64, layers=2))
    assert "embedding" not in str(results)
    results.append(row("b", embedding=128, layers=2))
    assert "embedding" in str(results)
    assert "layers" not in str(results)
