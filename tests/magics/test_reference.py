from __future__ import annotations

import subprocess
import sys

import pytest

from multislice_nb.magics import parser
from multislice_nb.magics.grammar import CELL, SUBCOMMANDS
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
        read = parser.parse_cell(example) if command.cell else parser.parse(f"{command.name} {example}")
        assert read.command is command
        assert not read.help


def test_the_overview_names_every_subcommand() -> None:
    """`%multislice --help` has a line for each subcommand, and none wider than a screen."""
    text = overview()
    assert all(f"\n  {command.name} " in text for command in SUBCOMMANDS)
    assert max(map(len, text.splitlines())) <= 100


def test_markdown_is_printed_for_the_readme() -> None:
    """`python -m multislice_nb.magics` prints the reference, with a row for every flag."""
    command = [sys.executable, "-m", "multislice_nb.magics"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert printed == markdown()
    for command_ in (*SUBCOMMANDS, CELL):
        assert f"`{command_.magic}`" in printed
        for argument in command_.arguments:
            assert all(flag in printed for flag in argument.flags)
