"""From the table and a line to a subcommand and its values, by argparse; every error is a `MagicError`."""

from __future__ import annotations

import argparse
import re
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from multislice_nb.errors import MagicError
from multislice_nb.magics.grammar import CELL, GROUPS, subcommand
from multislice_nb.magics.lines import addressed
from multislice_nb.magics.mistakes import mended, missing, no_cell, unknown_subcommand, unknown_word
from multislice_nb.magics.rawwords import HELP, pasted, with_rest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from multislice_nb.magics.arguments import Subcommand

__all__ = ["HELP", "Call", "is_pasted", "is_shell", "parse", "parse_cell", "read", "split"]


@dataclass(frozen=True, slots=True)
class Call:
    """A line that was understood.

    Attributes:
        command: Which subcommand; None for the overview.
        values: Its arguments, those that were given and no others.
        help: Whether help was asked for instead.
        group: Whose help, where it is that of several subcommands with one first word.
    """

    command: Subcommand | None
    values: dict[str, Any] = field(default_factory=dict)
    help: bool = False
    group: str = ""


class _Parser(argparse.ArgumentParser):
    """Argparse, but it raises where argparse ends the process, and asks for no words of its own."""

    def __init__(self, command: Subcommand) -> None:
        # A word that is given stands for itself alone: an abbreviation would change its meaning with the
        # next flag that begins like it.
        super().__init__(
            prog=command.magic, add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS
        )
        self.command = command
        groups: dict[str, argparse._MutuallyExclusiveGroup] = {}
        for argument in command.arguments:
            if argument.rest:
                continue
            where: argparse._ActionsContainer = self
            if argument.excludes:
                if argument.excludes not in groups:
                    groups[argument.excludes] = self.add_mutually_exclusive_group()
                where = groups[argument.excludes]
            options: dict[str, Any] = {"help": argument.help}
            if argument.switch:
                options["action"] = "store_true"
            elif argument.named:
                options |= {"action": "append", "nargs": argument.words, "metavar": ("KEY", "VALUE")}
            else:
                options |= {"type": argument.convert, "metavar": argument.metavar or argument.name.upper()}
                if argument.choices:
                    options["choices"] = argument.choices
            # What is needed is seen to once all words are known: a misspelt flag is named before what it left out.
            if argument.flags:
                where.add_argument(*argument.flags, dest=argument.name, **options)
            else:
                options["default"] = None  # argparse would convert the word that stands for no default
                where.add_argument(argument.name, nargs="*" if argument.many else "?", **options)

    def error(self, message: str) -> NoReturn:
        raise mended(self.command, message)


def split(line: str) -> list[str]:
    """Words as a shell would see them.

    Raises:
        MagicError: A quotation mark is open.
    """
    try:
        return shlex.split(line)
    except ValueError as error:
        raise MagicError(
            f"The line cannot be read: {str(error).lower()}.", fix="Close it, or write \"'\" and '\"'."
        ) from error


def parse(line: str) -> Call:
    """Read what follows `%multislice`.

    Raises:
        MagicError: A word is wrong; names the nearest right one.
    """
    line = line.replace("\\\n", " ")
    if not line.strip():
        return Call(subcommand("status"))
    command, text = _addressed(line)
    if command is not None:
        return read(command, text)
    words = split(line)
    if words and words[0] in {*HELP, "help"}:
        return _help_for(words[1:])
    if words and words[0] in GROUPS and (set(words) & set(HELP)):
        return Call(None, help=True, group=words[0])
    raise unknown_subcommand(words)


def parse_cell(line: str, body: str = "") -> Call:
    """Read what follows `%%multislice`.

    Args:
        line: The rest of its line.
        body: The cell; an argument of subcommands that take one.

    Raises:
        MagicError: A word is wrong; names the nearest right one.
    """
    line = line.replace("\\\n", " ")
    command, text = _addressed(line)
    if command is None:
        return read(CELL, line)
    if command.body is None:
        raise no_cell(command)
    return read(command, text, body)


def is_pasted(line: str) -> bool:
    """Whether what follows `%multislice` has a pasted command of another tool in it."""
    command, text = _addressed(line)
    return command is not None and bool(command.pasted) and bool(pasted(command, text)[1])


def is_shell(line: str) -> bool:
    """Whether what follows `%multislice` ends in a command for the workers' shell."""
    command, _ = _addressed(line)
    return command is not None and command.rest is not None


def _addressed(line: str) -> tuple[Subcommand | None, str]:
    """The subcommand that a line begins with, and what follows it as it is written."""
    found = addressed(line.split())
    if found is None:
        return None, line
    words = len(found[0].name.split())
    return found[0], "".join(line.split(None, words)[words:])


def _help_for(rest: Sequence[str]) -> Call:
    if not rest:
        return Call(None, help=True)
    command, _ = _addressed(" ".join(rest))
    if command is None and rest[0] in GROUPS:
        return Call(None, help=True, group=rest[0])
    if command is None:
        raise unknown_subcommand(rest)
    return Call(command, help=True)


def read(command: Subcommand, text: str, body: str = "") -> Call:
    """Read what follows the name of a subcommand.

    Args:
        command: The subcommand.
        text: The rest of its line.
        body: A cell below it.

    Raises:
        MagicError: A word is wrong; names the nearest right one.
    """
    more: dict[str, Any] = {}
    if command.body is not None and body.strip():
        more[command.body.name] = body
    tokens: list[str] = []
    rest = ""
    if command.pasted:
        tokens, rest = pasted(command, text)
        if rest and command.body is not None:
            more[command.body.name] = rest
    if command.rest is not None:
        tokens, rest = with_rest(command, text)
        if rest and command.rest.name in more:
            raise unknown_word(command, rest)
        if rest:
            more[command.rest.name] = rest
    elif not rest:
        tokens = split(text)
    if any(token in HELP for token in tokens):
        return Call(command, help=True)
    known, unknown = _Parser(command).parse_known_intermixed_args(_joined(tokens))
    if unknown:
        raise unknown_word(command, unknown[0])
    given = {name: value for name, value in vars(known).items() if value not in (None, [])}
    return Call(command, _complete(command, given | more))


def _complete(command: Subcommand, values: dict[str, Any]) -> dict[str, Any]:
    """The values, once everything is there that is needed in the absence of something else."""
    for argument in command.arguments:
        if argument.named and argument.name in values:
            values[argument.name] = dict(values[argument.name])
    needed = [
        argument
        for argument in command.arguments
        if (argument.required or argument.unless) and not {argument.name, *argument.unless} & set(values)
    ]
    if needed:
        raise missing(command, needed)
    return values


def _joined(tokens: Sequence[str]) -> list[str]:
    """A value that begins with one dash, as in `--zone -`, is given to its flag."""
    joined: list[str] = []
    for token in tokens:
        flag = joined[-1] if joined else ""
        if re.fullmatch(r"-|-\d\S*", token) and flag.startswith("--") and "=" not in flag:
            joined[-1] = f"{flag}={token}"
        else:
            joined.append(token)
    return joined
