"""Environment files as a shell reads them."""

from __future__ import annotations

import os
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multislice_nb import errors
from multislice_nb.cluster.variables import apply, parse

NAMES = st.from_regex(r"\A[A-Z_][A-Z0-9_]{0,10}\Z").filter(
    lambda name: not name.startswith(("MULTISLICE", "MEGASCALE"))
)
VALUES = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Zl", "Zp", "Cs"), exclude_characters="\x85")
)


@given(st.dictionaries(NAMES, VALUES))
def test_quoted_values_come_back(variables: dict[str, str]) -> None:
    """Any value that a shell would take from its quotes is read as it was."""
    text = "\n".join(f"export {name}={shlex.quote(value)}  # note" for name, value in variables.items())
    assert parse(text) == variables


def test_comments_blank_lines_and_bare_values() -> None:
    """What people write in such files is understood."""
    assert parse("# one\n\nA=1\n  export B='two words' # why\nC=\n") == {"A": "1", "B": "two words", "C": ""}


@pytest.mark.parametrize("line", ["WORD", "1A=x", "A=two words", "A='open", "A B=1"])
def test_a_line_that_is_none_is_told_by_number_and_not_shown(line: str) -> None:
    """The number says where, and a secret in the line does not get into an error."""
    with pytest.raises(errors.InvalidRequestError, match="Line 2") as caught:
        parse(f"GOOD=1\n{line}")
    assert line not in str(caught.value)


@pytest.mark.parametrize("name", ["MEGASCALE_NUM_SLICES", "MULTISLICE_NB_RANK"])
def test_what_is_computed_at_every_start_is_refused(name: str) -> None:
    """A stale value from a file cannot survive a change of the slices."""
    with pytest.raises(errors.InvalidRequestError, match="set anew at every start"):
        parse(f"{name}=3")


def test_what_our_packages_are_found_by_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A running engine takes over what was set, but for PYTHONPATH, without which its children would miss ours."""
    monkeypatch.setenv("PYTHONPATH", "/ours")
    monkeypatch.setenv("COLOR", "red")
    apply({"COLOR": "blue", "PYTHONPATH": "/mine"}, [])
    assert (os.environ["COLOR"], os.environ["PYTHONPATH"]) == ("blue", "/ours")
    apply({}, ["COLOR", "PYTHONPATH"])
    assert ("COLOR" in os.environ, os.environ["PYTHONPATH"]) == (False, "/ours")
