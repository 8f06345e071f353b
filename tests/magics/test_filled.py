from __future__ import annotations

from types import SimpleNamespace

import pytest
from IPython.core.interactiveshell import InteractiveShell

from multislice_nb.errors import MagicError
from multislice_nb.magics.filled import filled


@pytest.fixture(scope="module")
def shell() -> InteractiveShell:
    """One with a few variables."""
    shell = InteractiveShell()
    shell.user_ns |= {"name": "demo", "one": SimpleNamespace(zone="us-central2-b"), "sizes": [64]}
    return shell


@pytest.mark.parametrize(
    ("line", "whole"),
    [
        ("delete $name", "delete demo"),
        ("list --zone {one.zone}", "list --zone us-central2-b"),
        ("sweep --batch-sizes {sizes[0] * 2}", "sweep --batch-sizes 128"),
        ("push code/{a,b}.py", "push code/{a,b}.py"),
        ("""create --metadata '{"a": {"b": 1}}'""", """create --metadata '{"a": {"b": 1}}'"""),
        ("create --description 'costs $much'", "create --description 'costs $much'"),
        ("list --zone {", "list --zone {"),
    ],
)
def test_what_is_defined_is_filled_in_and_what_is_no_name_stays(
    shell: InteractiveShell, line: str, whole: str
) -> None:
    """Variables, attributes and expressions are filled in; globs, JSON and quoted dollars stand for themselves."""
    assert filled(shell, line, 0, strict=True) == whole


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("delete $nmae", "nmae"),
        ("create $name --accelerator-type $kind", "kind"),
        ("list --zone {one.zoen}", "one.zoen"),
        ("sweep --batch-sizes {sizes[7]}", r"sizes\[7\]"),
    ],
)
def test_the_one_name_that_is_not_defined_is_named(shell: InteractiveShell, line: str, wrong: str) -> None:
    """IPython leaves all of a line as it is when one name is missing; here that name is the error."""
    with pytest.raises(MagicError, match=rf"^{wrong} is not defined in this notebook"):
        filled(shell, line, 0, strict=True)


def test_a_shell_commands_own_variables_are_its_own(shell: InteractiveShell) -> None:
    """In a line for the workers' shell a name that the notebook does not know is left to the workers."""
    assert filled(shell, "sh echo $HOME", 0, strict=False) == "sh echo $HOME"
