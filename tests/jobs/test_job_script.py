from __future__ import annotations

import pytest

from multislice_nb.errors import InvalidRequestError
from multislice_nb.jobs.script import require_script

FILES = ("train.py", "tools/run.sh")


@pytest.mark.parametrize(
    "command",
    [
        "python3 train.py --lr 1e-3",
        "exec python3.12 -u ./train.py",
        "bash tools/run.sh other.py",
        "python3 -m train",
        "python3 -c 'import x.py'",
        "python3 /opt/other.py",
        "cd sub && python3 other.py",
        "python3 $SCRIPT.py",
        "./other.py",
        "python3",
        "echo 'open",
    ],
)
def test_what_is_there_or_may_be_is_let_pass(command: str) -> None:
    """Only a plain command with a relative path is judged."""
    require_script(command, FILES)


def test_a_script_that_is_missing_is_told_before_anything_is_asked_for() -> None:
    """With the name that it is near to."""
    with pytest.raises(InvalidRequestError, match=r"trian.py, which is not in the job's folder") as caught:
        require_script("python3 trian.py --steps 3", FILES)
    assert "Did you mean train.py?" in caught.value.fix


def test_a_script_without_a_folder_is_told() -> None:
    """The code does not go along by itself."""
    with pytest.raises(InvalidRequestError, match="no code goes with the job") as caught:
        require_script("python3 train.py", None)
    assert "--folder ." in caught.value.fix
