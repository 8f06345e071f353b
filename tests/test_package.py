"""The package's face: what it exports, what importing it costs, and what its errors are."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import multislice_nb as ms
from multislice_nb import errors


@pytest.mark.parametrize("name", ms.__all__)
def test_every_public_name_is_there(name: str) -> None:
    """What `__all__` promises can be had, and is documented."""
    assert inspect.getdoc(getattr(ms, name))


def test_an_unknown_name_is_an_attribute_error() -> None:
    """A slip of the pen fails as it does in any module."""
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = ms.nothing_like_it


def test_error_tree_is_what_its_docstring_draws() -> None:
    """Every class of the tree is public and drawn, and every drawn class exists."""
    classes = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, Exception)
    }
    assert classes == set(errors.__all__)
    drawn = {
        line.split()[-1] if len(line.split()) == 1 else line.replace("│", "").split("── ")[-1].split()[0]
        for line in (errors.__doc__ or "").splitlines()
        if "Error" in line and ("──" in line or line.strip().isidentifier())
    }
    assert drawn == classes


def test_an_error_shows_as_sentences_without_a_traceback() -> None:
    """IPython is told to show what happened and what to do, not our frames."""
    error = errors.NotFoundError(
        "There is no queued resource demo.", fix="%multislice list shows those there are."
    )
    shown = "\n".join(error._render_traceback_())
    assert (
        shown == "NotFoundError: There is no queued resource demo.\n%multislice list shows those there are."
    )
    assert "multislice_nb/" not in shown


def test_faults_are_reported_together() -> None:
    """A request with several faults names them all at once."""
    error = errors.InvalidRequestError.of_faults(
        "queued resource x", [("a is bad.", "Do b."), ("c is bad.", "Do d.")]
    )
    assert "2 faults" in str(error)
    assert all(text in str(error) for text in ("a is bad. Do b.", "c is bad. Do d."))


def test_unloading_takes_the_magics_away() -> None:
    """`%unload_ext multislice_nb` undoes `%load_ext multislice_nb`."""
    script = (
        "from IPython.core.interactiveshell import InteractiveShell as S; s = S.instance()\n"
        "s.run_line_magic('load_ext', 'multislice_nb'); print('multislice' in s.magics_manager.magics['line'])\n"
        "s.run_line_magic('unload_ext', 'multislice_nb'); print('multislice' in s.magics_manager.magics['line'])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]
