"""The README says what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from multislice_nb.magics import reference

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_table_of_magics_is_the_grammars() -> None:
    """The README's reference is the one that the grammar makes."""
    block = README.split("<!-- made by: python -m multislice_nb.magics -->\n")[1].split("<!-- end -->")[0]
    assert block.strip() == reference.markdown().split("\n\n")[0].strip()


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)#:]+)\)", README))
def test_links_lead_somewhere(target: str) -> None:
    """Every relative link and picture exists."""
    assert (Path(__file__).parents[1] / target).exists()


def test_the_python_example_is_true() -> None:
    """The numbers beside the calls in the README are what the calls return."""
    import multislice_nb as ms

    for line, value in re.findall(r"^(ms\.sharding\.\S+\(.*?\)) +# ([\d.]+)", README, re.MULTILINE):
        assert eval(line, {"ms": ms}) == float(value)  # noqa: S307 - the README is ours
