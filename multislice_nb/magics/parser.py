"""From the table and a line to a subcommand and its values, by argparse; every error is a `MagicError`."""

from __future__ import annotations

import argparse
import difflib
import re
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from multislice_nb.errors import MagicError
from multislice_nb.magics.grammar import CELL, SUBCOMMANDS, SYNONYMS, subcommand

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from multislice_nb.magics.arguments import Subcommand

__all__ = ["HELP", "Call", "closest", "parse", "parse_cell", "split"]

HELP = ("--help", "-h")


@dataclass(frozen=True, slots=True)
class Call:
    """A line that was understood.

    Attributes:
        command: Which subcommand; None for the overview.
        values: Its arguments, those that were given and no others.
        help: Whether help was asked for instead.
    """

    command: Subcommand | None
    values: dict[str, Any] = field(default_factory=dict)
    help: bool = False


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
            where: argparse._ActionsContainer = self
            if argument.excludes:
                if argument.excludes not in groups:
                    groups[argument.excludes] = self.add_mutually_exclusive_group()
                where = groups[argument.excludes]
            options: dict[str, Any] = {"help": argument.help}
            if argument.switch:
                options["action"] = "store_true"
            else:
                options |= {"type": argument.convert, "metavar": argument.metavar or argument.name.upper()}
                if argument.choices:
                    options["choices"] = argument.choices
            if argument.flags:
                where.add_argument(*argument.flags, dest=argument.name, required=argument.required, **options)
            else:
                nargs = {(True, True): "+", (True, False): None, (False, True): "*", (False, False): "?"}
                where.add_argument(argument.name, nargs=nargs[argument.required, argument.many], **options)

    def error(self, message: str) -> NoReturn:
        raise _mended(self.command, message)


def split(line: str) -> list[str]:
    """Words as a shell would see them.

    Raises:
        MagicError: A quotation mark is open.
    """
    try:
        return shlex.split(line.replace("\\\n", " "))
    except ValueError as error:
        raise MagicError(
            f"The line cannot be read: {str(error).lower()}.", fix="Close it, or write \"'\" and '\"'."
        ) from error


def parse(line: str) -> Call:
    """Read what follows `%multislice`.

    Raises:
        MagicError: A word is wrong; names the nearest right one.
    """
    tokens = split(line)
    if not tokens:
        return Call(subcommand("status"))
    word, *rest = tokens
    if word in {*HELP, "help"}:
        return _help_for(rest)
    command = subcommand(word)
    if command is None:
        raise _unknown_subcommand(word)
    return _parse(command, rest)


def parse_cell(line: str) -> Call:
    """Read what follows `%%multislice`.

    Raises:
        MagicError: A word is wrong; names the nearest right one.
    """
    tokens = split(line)
    if tokens and subcommand(tokens[0]) is not None:
        raise MagicError(
            f"%%multislice runs its cell on the workers and has no subcommand {tokens[0]}.",
            fix=f"Write %multislice {tokens[0]}, with one % and in a line of its own.",
        )
    return _parse(CELL, tokens)


def _help_for(rest: Sequence[str]) -> Call:
    if not rest:
        return Call(None, help=True)
    command = subcommand(rest[0])
    if command is None:
        raise _unknown_subcommand(rest[0])
    return Call(command, help=True)


def _parse(command: Subcommand, tokens: Sequence[str]) -> Call:
    if any(token in HELP for token in tokens):
        return Call(command, help=True)
    known, unknown = _Parser(command).parse_known_intermixed_args(_joined(tokens))
    if unknown:
        raise _unknown_word(command, unknown[0])
    return Call(command, vars(known))


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


def closest(word: str, candidates: Iterable[str]) -> str | None:
    """What a misspelt word is likeliest to mean."""
    names = list(candidates)
    found = difflib.get_close_matches(word.lower(), names, n=1, cutoff=0.6)
    if found:
        return found[0]
    longer = [name for name in names if len(word) > 2 and name.lower().startswith(word.lower())]
    return longer[0] if len(longer) == 1 else None


def _unknown_subcommand(word: str) -> MagicError:
    names = [command.name for command in SUBCOMMANDS]
    near = SYNONYMS.get(word.lower()) or closest(word, names)
    meant = (
        f"Did you mean {near if near and near.startswith('%') else f'%multislice {near}'}? " if near else ""
    )
    return MagicError(f"%multislice has no subcommand {word!r}.", fix=f"{meant}There are {', '.join(names)}.")


def _unknown_word(command: Subcommand, word: str) -> MagicError:
    name = word.partition("=")[0]
    if not word.startswith("-"):
        return MagicError(f"{command.magic} has no place for {word!r}.", fix=_usage(command))
    flags = [flag for argument in command.arguments for flag in argument.flags]
    near = closest(name, flags)
    return MagicError(
        f"{command.magic} has no flag {name}.", fix=f"Did you mean {near}?" if near else _usage(command)
    )


def _usage(command: Subcommand) -> str:
    needed = [a.shown for a in command.arguments if not a.flags or a.required]
    more = [" [FLAGS]"] if any(a.flags and not a.required for a in command.arguments) else []
    return f"Usage: {' '.join([command.magic, *needed])}{''.join(more)}; see {command.magic} --help."


_SAID = re.compile(r"argument (?P<name>\S+?): (?P<what>.*)", re.DOTALL)
_CHOICE = re.compile(r"invalid choice: '(?P<word>.*?)' \(choose from (?P<names>.*)\)", re.DOTALL)
_AGAINST = re.compile(r"not allowed with argument (?P<other>\S+)")


def _mended(command: Subcommand, message: str) -> MagicError:
    """What argparse said, as what happened and what to do."""
    missing = re.fullmatch(r"the following arguments are required: (?P<names>.*)", message)
    if missing:
        return MagicError(f"{command.magic} needs {missing['names']}.", fix=_usage(command))
    said = _SAID.fullmatch(message)
    if not said:
        return MagicError(f"{command.magic}: {message}.", fix=_usage(command))
    name, what = said["name"].split("/")[0], said["what"]
    choice = _CHOICE.fullmatch(what)
    if choice:
        names = [word.strip(" '") for word in choice["names"].split(",")]
        near = closest(choice["word"], names)
        meant = f"Did you mean {near}? " if near else ""
        return MagicError(
            f"{name} of {command.magic} cannot be {choice['word']!r}.",
            fix=f"{meant}It is one of {', '.join(names)}.",
        )
    against = _AGAINST.fullmatch(what)
    if against:
        return MagicError(
            f"{name} and {against['other']} exclude each other.",
            fix=f"Give one of them; see {command.magic} --help.",
        )
    if what.startswith("expected one argument"):
        return MagicError(f"{name} of {command.magic} needs a value.", fix=_usage(command))
    return MagicError(f"{name} of {command.magic} {what}.", fix=f"See {command.magic} --help.")
