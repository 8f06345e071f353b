from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell

from multislice_nb.magics import parser
from multislice_nb.magics.actions import Actions
from multislice_nb.magics.grammar import CELL, GROUPS, SUBCOMMANDS, subcommand
from multislice_nb.magics.magics import MultisliceMagics
from multislice_nb.magics.reference import command_help, markdown, overview


@pytest.mark.parametrize("command", [*SUBCOMMANDS, CELL], ids=lambda command: command.name)
def test_help_names_every_argument(command) -> None:
    """`--help` of a subcommand has its summary and each of its flags and arguments, and its examples parse."""
    text = command_help(command)
    assert command.summary in text
    for argument in command.arguments:
        assert all(flag in text for flag in argument.flags)
        assert argument.help.split()[0] in text
    for example in command.examples:
        read = parser.parse_cell(example, "1") if command.cell else parser.parse(f"{command.name} {example}")
        assert read.command is command
        assert not read.help


@pytest.mark.parametrize("command", SUBCOMMANDS, ids=lambda command: command.name)
def test_an_interrupt_of_any_line_is_a_sentence(command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a line was at, its interrupt is told in words; what a call itself says of it comes first."""
    magics = MultisliceMagics(InteractiveShell())
    stop = KeyboardInterrupt()
    stop.add_note("2 measurements are kept.")

    def interrupted(*_: object, **__: object) -> None:
        raise stop

    monkeypatch.setattr(Actions, command.method, interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        magics._act(parser.Call(command))
    (told,) = caught.value._render_traceback_()  # type: ignore[attr-defined]
    assert told == f"Interrupted: 2 measurements are kept. {command.left}".rstrip()
    assert not command.left or (command.left.endswith(".") and command.left[0].islower())


def test_the_overview_names_every_subcommand() -> None:
    """`%multislice --help` has a line for each subcommand, and none wider than a screen."""
    text = overview()
    assert all(f"\n  {command.name} " in text for command in SUBCOMMANDS)
    assert max(map(len, text.splitlines())) <= 100
    jobs = overview("job")
    assert "job retry" in jobs
    assert "attach" not in jobs


def test_markdown_is_printed_for_the_readme() -> None:
    """`python -m multislice_nb.magics` prints the reference, with a row for every flag."""
    command = [sys.executable, "-m", "multislice_nb.magics"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert printed == markdown()
    for command_ in (*SUBCOMMANDS, CELL):
        assert f"`{command_.magic}`" in printed
        for argument in command_.arguments:
            assert all(flag in printed for flag in argument.flags)


PACKAGE = Path(__file__).parents[2]
TEXTS = [
    *PACKAGE.glob("multislice_nb/**/*.py"),
    *PACKAGE.glob("notebooks/*.ipynb"),
    *PACKAGE.glob("*.md"),
    *PACKAGE.glob("docs/**/*.md"),
]


def test_what_messages_advise_exists() -> None:
    """Each `%multislice word` in a message, a document or a notebook is a subcommand, with flags that it has."""
    said = re.compile(r"(?<!%)%multislice ([a-z][a-z-]+)(?: ([a-z-]+))?((?: --[a-z-]+)*)")
    wrong = []
    for path in TEXTS:
        for first, second, flags in said.findall(path.read_text(encoding="utf-8")):
            command = subcommand(f"{first} {second}") or subcommand(first)
            known = command is not None and all(
                command.flag(flag) or flag == "--help" for flag in flags.split()
            )
            if not known and first not in {*GROUPS, "has", "runs", "needs", "cannot"}:
                wrong.append(f"{path.name}: %multislice {first} {second}{flags}")
    assert wrong == []
