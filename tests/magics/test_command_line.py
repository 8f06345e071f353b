"""`python -m multislice_nb SUBCOMMAND`: what needs no kernel, from a shell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from multislice_nb.__main__ import main
from multislice_nb.magics.actions import Actions
from multislice_nb.magics.command_line import COMMANDS
from multislice_nb.magics.grammar import SUBCOMMANDS
from multislice_nb.widgets.session import current

if TYPE_CHECKING:
    from pathlib import Path

    from multislice_nb.cloud import Cloud


def test_slices_from_a_shell(cloud: Cloud, capsys: pytest.CaptureFixture[str]) -> None:
    """Ask, wait, look and delete, each a command of its own, as the magics do it."""
    assert main(["create", "shell", "--accelerator-type", "v4-8", "--labels", "team=mine", "--wait"]) == 0
    assert cloud.get("shell").state == "ACTIVE"
    assert main(["list"]) == 0
    assert "ACTIVE" in capsys.readouterr().out
    assert main(["delete", "shell"]) == 0
    assert "shell deleted" in capsys.readouterr().out
    assert main(["describe", "shell"]) == 1
    assert capsys.readouterr().err.startswith("NotFoundError: ")


def test_place_is_said_with_each_call(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is no connection of a call before, nor one that is left for the next."""
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    assert main(["job", "list", "--project", "my-project"]) == 1
    assert "Project my-project (argument) has no zone" in capsys.readouterr().err
    cloud = current().cloud
    assert cloud is None or cloud.project != "my-project"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["lst"], "Did you mean python -m multislice_nb list?"),
        (["nothing-like-it"], "There are doctor, create"),
        (["attach", "demo"], "attach needs a notebook.\nThere it is %multislice attach"),
        (["connect"], "--project says where to"),
        (["list", "--zoen", "-"], "Did you mean --zone?"),
        (["create", "x", "--accelerator-type", "v4-8", "--until-exit"], "has no flag --until-exit"),
    ],
)
def test_wrong_words(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What cannot be read says what was meant, or where it can be had."""
    assert main(words) == 2
    assert told in capsys.readouterr().err


def test_an_interrupt_says_what_is_left(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C ends a command with the status that shells expect, and says what goes on and what shows it."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Actions, "delete", interrupted)
    assert main(["delete", "shell"]) == 130
    told = "what is being deleted goes on by itself: python -m multislice_nb list shows what is left."
    assert capsys.readouterr().err == f"Interrupted: {told}\n"


def test_every_subcommand_of_a_shell_is_one_of_the_magics() -> None:
    """There is one table; a shell has fewer of its rows, and fewer arguments in them."""
    rows = {command.name: command for command in SUBCOMMANDS}
    for name, command in COMMANDS.items():
        assert {a.name for a in command.arguments} <= {a.name for a in rows[name].arguments} | {
            "project",
            "zone",
        }
        assert "%" not in command.summary


def test_help_names_every_subcommand(capsys: pytest.CaptureFixture[str]) -> None:
    """The overview has those of the table beside the shell's own."""
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in (*COMMANDS, "demo", "emulator"))
