"""`python -m multislice_nb SUBCOMMAND …`: what needs no kernel, from a shell, by the table of `%multislice`."""

from __future__ import annotations

import shlex
import textwrap
from typing import TYPE_CHECKING, Any

from multislice_nb.errors import MagicError
from multislice_nb.magics import grammar, mistakes, parser, reference
from multislice_nb.magics.arguments import Argument, Subcommand
from multislice_nb.magics.grammar_cloud import CLOUD
from multislice_nb.magics.grammar_jobs import JOBS
from multislice_nb.magics.grammar_slices import SLICES
from multislice_nb.magics.shared import ZONE

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["COMMANDS", "PREFIX", "overview", "run"]

PREFIX = "python -m multislice_nb"

# Where a call connects to; in a notebook `connect` has said that.
_PLACE = (
    Argument(
        name="project",
        flags=("--project",),
        help="Project id; the configured one if left out, or the emulator",
    ),
    ZONE.but(help="Zone; the configured one if left out"),
)

# Cells are a notebook's, and the last three end a queued resource from a process that stays.
_OF_A_KERNEL = {"cells", "ttl", "idle_limit", "until_exit"}
_SUMMARIES = {"create": "Ask for slices: a queued resource."}
_WITHOUT = {"connect": "Each call connects by itself; --project says where to."}

_ROWS = {command.name: command for command in (*CLOUD, *SLICES, *JOBS) if command.name not in _WITHOUT}


def _for_a_shell(command: Subcommand) -> Subcommand:
    kept = [argument for argument in command.arguments if argument.name not in _OF_A_KERNEL]
    names = {argument.name for argument in kept}
    return command.but(
        summary=_SUMMARIES.get(command.name, command.summary),
        arguments=(
            *(argument.but(unless=tuple(names & set(argument.unless))) for argument in kept),
            *(argument for argument in _PLACE if argument.name not in names),
        ),
        examples=tuple(example for example in command.examples if _is_for_a_shell(example)),
        body=None,
        pasted="",  # a shell has the other tool itself
        prefix=PREFIX,
    )


def _is_for_a_shell(example: str) -> bool:
    return "gcloud" not in example and not any(f"--{name}" in example for name in _OF_A_KERNEL)


COMMANDS: dict[str, Subcommand] = {name: _for_a_shell(command) for name, command in _ROWS.items()}
"""Subcommands that there are in a shell, by name, with the arguments that they take there."""


def overview() -> str:
    """All of them in a line each."""
    width = max(map(len, COMMANDS)) + 4
    return "\n".join(
        textwrap.fill(
            command.summary, 110, initial_indent=f"  {name:<{width}}", subsequent_indent=" " * (width + 2)
        )
        for name, command in COMMANDS.items()
    )


def run(words: Sequence[str]) -> int:
    """Do what the words of a command line say, and print what came of it.

    Args:
        words: A subcommand and what follows it, as the shell has split them.

    Returns:
        The exit status: 1 where a job was waited for that did not succeed.

    Raises:
        MagicError: A word is wrong; names the nearest right one.
        MultisliceError: What was asked for cannot be had.
    """
    command, rest = _addressed(words)
    if command is None:
        print(reference.overview(words[0], PREFIX))
        return 0
    call = parser.read(command, shlex.join(rest))
    if call.help:
        print(reference.command_help(command))
        return 0
    found = _act(command, call.values)
    if found is not None:
        print(found)
    return 1 if command.name == "job wait" and found.state != "succeeded" else 0


def _addressed(words: Sequence[str]) -> tuple[Subcommand | None, Sequence[str]]:
    """The subcommand and the words after it; none where help for a group of them is asked for."""
    for count in (2, 1):
        command = COMMANDS.get(" ".join(words[:count]))
        if command is not None:
            return command, words[count:]
    if words[0] == "job" and set(words) & set(parser.HELP):
        return None, ()
    known = grammar.subcommand(" ".join(words[:2])) or grammar.subcommand(words[0])
    if known is not None:
        raise MagicError(
            f"{known.name} needs a notebook.",
            fix=_WITHOUT.get(known.name, f"There it is {known.magic}, after %load_ext multislice_nb."),
        )
    raise mistakes.unknown_subcommand(words, COMMANDS.values(), PREFIX)


def _act(command: Subcommand, given: dict[str, Any]) -> Any:
    from multislice_nb._live import Line
    from multislice_nb.magics.actions import Actions
    from multislice_nb.magics.cells import of_a_line
    from multislice_nb.widgets.session import Session

    session = Session()
    zone = given.get("zone")
    session.connect(given.get("project"), None if zone == "-" else zone)
    taken = {argument.name for argument in _ROWS[command.name].arguments}
    values = {name: value for name, value in given.items() if name in taken}
    rest = command.rest
    if rest is not None and rest.name in values:
        # One word is a script, as it is for `bash -c`; several are a command and its arguments.
        words = shlex.split(values[rest.name])
        values[rest.name] = words[0] if len(words) == 1 else values[rest.name]
    if command.name == "job logs":
        values.setdefault("lines", None)
    actions = Actions(lambda: Line(watched=False), {}, session=session)
    try:
        return getattr(actions, command.method)(**values)
    except KeyboardInterrupt as stop:
        raise of_a_line(stop, command) from None
