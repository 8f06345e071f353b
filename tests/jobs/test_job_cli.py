from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import pytest
import yaml

from multislice_nb import jobs
from multislice_nb.__main__ import main
from multislice_nb.errors import InvalidRequestError, NotFoundError
from multislice_nb.jobs import cli

if TYPE_CHECKING:
    from pathlib import Path

    from multislice_nb.cloud import Cloud


def job(*words: str) -> int:
    """Run `python -m multislice_nb job …`."""
    parser = argparse.ArgumentParser()
    cli.add_parser(parser.add_subparsers(dest="command_"))
    return cli.run(parser.parse_args(["job", *words]))


def test_a_job_from_a_shell(cloud: Cloud, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Submit, wait, list, logs, errors and results, each a command of its own."""
    store = ["--store", str(tmp_path / "store")]
    command = [
        "--command",
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
    with pytest.raises(InvalidRequestError, match="no rank 7"):
        job("logs", "shell", *store, "--ranks", "0,7")
    assert job("logs", "shell", *store, "--grep", "nowhere") == 0
    assert "no such line" in capsys.readouterr().err
    assert job("logs", "shell", *store, "--errors") == 0
    assert capsys.readouterr().out == "[1:0] KeyError: x\n"
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
        (["--folder", "{here}", "--command", "python3", "trian.py"], "Did you mean train.py?"),
        (["--command", "python3", "train.py"], "--folder ."),
        (["--store", "{here}/train.py", "--command", "true"], "cannot be reached"),
        (["--env", "DSN=postgres://me:hunter22@db/x", "--command", "true"], "Secret Manager"),
        (["--zone", "mars-1a", "--command", "true"], "mars-1a does not exist"),
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


def test_a_command_and_a_notebook_exclude_each_other(cloud: Cloud, tmp_path: Path) -> None:
    """Neither is as wrong as both."""
    with pytest.raises(InvalidRequestError, match="either a command or a notebook"):
        job("submit", "x", "--store", str(tmp_path), "--accelerator-type", "v4-8")


@pytest.mark.parametrize("words", [["logs", "x", "--grep", "("], ["submit", "x", "--parameters", "[1]"]])
def test_a_wrong_word_is_told_without_a_traceback(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The parser says which word it is and what is wrong with it."""
    with pytest.raises(SystemExit):
        job(*words)
    assert "is no" in capsys.readouterr().err


def test_ranks_are_read_as_everywhere() -> None:
    """Single ones and ranges."""
    assert cli._ranks("0,2-4") == [0, 2, 3, 4]
    with pytest.raises(argparse.ArgumentTypeError):
        cli._ranks("a")
