"""The README says what the code says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from multislice_nb.magics import reference

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_the_table_of_magics_is_the_grammars() -> None:
    """The README's reference is the one that the grammar makes."""
    block = README.split("<!-- made by: python -m multislice_nb.magics -->\n")[1].split("<!-- end -->")[0]
    assert block.strip() == reference.markdown().split("\n\n")[0].strip()


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)#:]+)\)", README))
def test_links_lead_somewhere(target: str) -> None:
    """Every relative link and picture exists."""
    assert (ROOT / target).exists()


def test_the_python_example_is_true() -> None:
    """The numbers beside the calls in the README are what the calls return."""
    import multislice_nb as ms

    for line, value in re.findall(r"^(ms\.sharding\.\S+\(.*?\)) +# ([\d.]+)", README, re.MULTILINE):
        assert eval(line, {"ms": ms}) == float(value)  # noqa: S307 - the README is ours


def said() -> str:
    """Every text constant of the package, the constant parts of formatted ones included."""
    constants = []
    for path in sorted((ROOT / "multislice_nb").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        constants += [
            n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)
        ]
    return "\n".join(constants)


def quoted() -> list[str]:
    """What the first column of the troubleshooting table quotes."""
    section = README.split("## When something is wrong")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    return [re.findall(r"`([^`]+)`", row.split(" | ")[0])[0] for row in rows]


def test_troubleshooting_quotes_what_is_said() -> None:
    """Each message that the README explains is one of ours, word for word; `…` stands for what differs."""
    words = said()
    assert len(quoted()) > 10
    for message in quoted():
        parts = [part.strip(" .:") for part in re.split(r"…|\{\w+\}", message) if part.strip(" .:")]
        assert [part for part in parts if part not in words] == [], message


def test_every_lesson_is_listed() -> None:
    """Each experiment notebook stands in the README's table with its question."""
    from multislice_nb.experiments import notebooks

    assert [one.name for one in notebooks() if f"notebooks/{one.name}.ipynb" not in README] == []
