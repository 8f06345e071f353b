from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import yaml

from multislice_nb import jobs
from multislice_nb.__main__ import main
from multislice_nb.errors import NotFoundError

if TYPE_CHECKING:
    from pathlib import Path

    from multislice_nb.cloud import Cloud


def job(*words: str) -> int:
    """Run `python -m multislice_nb job …`."""
    return main(["job", *words])


def test_a_job_from_a_shell(cloud: Cloud, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Submit, wait, list, logs, errors and results, each a command of its own."""
    store = ["--store", str(tmp_path / "store")]
    command = [
        "bash",
        "-c",
        'echo "to  be" "$WORD"; echo KeyError: x; touch $MULTISLICE_NB_RESULTS/made',
    ]
    size = ["--accelerator-type", "v4-8", "--env", "WORD=or not"]
    assert job("submit", "shell", *store, *size, *command) == 0
    assert job("wait", "shell", *store, "--timeout", "60s") == 0
    capsys.readouterr()
    assert job("logs", "shell", *store, "--ranks", "0", "--grep", "be") == 0
    assert capsys.readouterr().out == "[1:0] to  be or not\n"
    assert job("logs", "shell", *store, "--ranks", "0,7") == 1
    assert "no rank 7" in capsys.readouterr().err
    assert job("logs", "shell", *store, "--errors") == 0
    assert capsys.readouterr().out == "[1:0] KeyError: x\n"
    assert job("logs", "shell", *store, "--errors", "--ranks", "1") == 1
    assert "no rank 1" in capsys.readouterr().err
    assert job("logs", "shell", *store, "--errors", "--follow", "--supervisor") == 0
    assert capsys.readouterr().out == ""
    assert job("list", *store) == 0
    assert "succeeded" in capsys.readouterr().out
    assert job("results", "shell", str(tmp_path / "here"), *store) == 0
    assert (tmp_path / "here" / "rank-00000" / "made").exists()
    capsys.readouterr()
    assert job("jobset", "shell", *store, "--image", "image:1") == 0
    assert yaml.safe_load(capsys.readouterr().out)["kind"] == "JobSet"
    assert job("remove", "shell", *store) == 0
    assert job("list", *store) == 0
    assert capsys.readouterr().out.endswith("No jobs.\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--folder", "{here}", "python3", "trian.py"], "Did you mean train.py?"),
        (["python3", "train.py"], "--folder ."),
        (["--store", "{here}/train.py", "true"], "cannot be reached"),
        (["--env", "DSN=postgres://me:hunter22@db/x", "true"], "Secret Manager"),
        (["--zone", "mars-1a", "true"], "mars-1a does not exist"),
        (["--notebook", "{here}/none.ipynb"], "none.ipynb cannot be read"),
    ],
)
def test_what_cannot_run_is_told_in_two_sentences_and_leaves_nothing(
    cloud: Cloud, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    """No traceback, no record, no queued resource; and the name stays free."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("print('trained')\n")
    words = [word.format(here=tmp_path / "code") for word in words]
    submit = ["submit", "wrong", "--store", str(tmp_path / "store"), "--accelerator-type", "v4-8"]
    assert main(["job", *submit, *words]) == 1
    error = capsys.readouterr().err
    assert told in error
    assert "hunter22" not in error
    assert "Traceback" not in error
    with pytest.raises(NotFoundError):
        cloud.get("wrong")
    assert not jobs.list(store=tmp_path / "store", cloud=cloud)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "job needs an action"),
        (["submti", "x"], "Did you mean python -m multislice_nb job submit?"),
        (["submit", "x", "--accelerator-type", "v4-8"], "needs COMMAND"),
        (
            ["submit", "x", "--accelerator-type", "v4-8", "--notebook", "n.ipynb", "true"],
            "either a command or",
        ),
        (["submit", "x", "--accelerator-type", "v4-8", "--nodes", "2", "true"], "Did you mean --node-count?"),
        (["submit", "x", "--accelerator-type", "v4-8", "--cells", "3"], "has no flag --cells"),
        (["logs", "x", "--ranks", "a"], "takes ranks as 0,2-3"),
    ],
)
def test_a_wrong_word_is_told_without_a_traceback(
    cloud: Cloud, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    """It says which word, what is wrong with it and what was meant, and ends with status 2."""
    assert job(*words) == 2
    assert told in capsys.readouterr().err


def test_one_word_is_a_script_and_several_are_a_command(
    cloud: Cloud, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As for `bash -c` and for `env`: words that the shell has kept together stay together."""
    submit = ["submit", "x", "--store", str(tmp_path), "--accelerator-type", "v4-8", "--dry-run"]
    assert job(*submit, "echo one && echo two") == 0
    assert job(*submit, "printf", "%s", "a  b") == 0
    commands = re.findall(r'"command": "(.*)",', capsys.readouterr().out)
    assert commands == ["echo one && echo two", "printf %s 'a  b'"]


def test_help_is_that_of_the_magics_with_what_is_typed_here(capsys: pytest.CaptureFixture[str]) -> None:
    """Usage and examples begin with the command, and leave out what needs a notebook."""
    assert job("submit", "--help") == 0
    shown = capsys.readouterr().out
    assert "Usage: python -m multislice_nb job submit NAME" in shown
    assert "%multislice" not in shown
    assert "--cells" not in shown
    assert job("--help") == 0
    assert "job jobset" in capsys.readouterr().out


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    """`… | head` ends without a word."""
    command = [sys.executable, "-m", "multislice_nb", "job", "submit", "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 141
