"""What was meant by a wrong word: every mistake on a line as a `MagicError` with the nearest right thing."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from multislice_nb.errors import MagicError
from multislice_nb.magics.grammar import GROUPS, SUBCOMMANDS, SYNONYMS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from multislice_nb.magics.arguments import Argument, Subcommand

__all__ = ["closest", "mended", "missing", "no_cell", "nothing_to_run", "unknown_subcommand", "unknown_word"]


def closest(word: str, candidates: Iterable[str]) -> str | None:
    """What a misspelt word is likeliest to mean."""
    names = list(candidates)
    longer = [name for name in names if len(word) > 2 and name.lower().startswith(word.lower())]
    if len(longer) == 1:
        return longer[0]
    found = difflib.get_close_matches(word.lower(), names, n=1, cutoff=0.6)
    return found[0] if found else None


_ELSEWHERE = {
    "--nodes": "--node-count",
    "--num-nodes": "--node-count",
    "--num-slices": "--node-count",
    "--slices": "--node-count",
    "--tpu-type": "--accelerator-type",
    "--version": "--runtime-version",
    "--preemptible": "--spot",
    "--best-effort": "--spot",
}
"""Flags of other tools for the same; only where the subcommand has it."""


def unknown_subcommand(
    words: Iterable[str], among: Iterable[Subcommand] = SUBCOMMANDS, prefix: str = "%multislice"
) -> MagicError:
    """The first word, or the second of a group's, is none."""
    first, second = (*words, "", "")[:2]
    if first in GROUPS:
        actions = GROUPS[first]
        near = closest(second, actions) if second else None
        said = f"has no action {second!r}" if second else "needs an action"
        meant = f"Did you mean {prefix} {first} {near}? " if near else ""
        return MagicError(f"{prefix} {first} {said}.", fix=f"{meant}There are {', '.join(actions)}.")
    names = list(dict.fromkeys(command.name.split()[0] for command in among))
    near = SYNONYMS.get(first.lower()) or closest(first, names)
    meant = near if near and near.startswith("%") else f"{prefix} {near}"
    return MagicError(
        f"{prefix} has no subcommand {first!r}.",
        fix=f"Did you mean {meant}? All of them: {prefix} --help."
        if near
        else f"There are {', '.join(names)}.",
    )


def no_cell(command: Subcommand) -> MagicError:
    """A cell stands below a subcommand that takes none."""
    return MagicError(
        f"%%multislice runs its cell on the workers and has no subcommand {command.name}.",
        fix=f"Write {command.magic}, with one % and in a line of its own.",
    )


def nothing_to_run() -> MagicError:
    """The cell is empty."""
    return MagicError(
        "%%multislice has nothing to run: the cell below it is empty.",
        fix="Write code below it; for what one line says there is %multislice, with one %.",
    )


def missing(command: Subcommand, needed: Iterable[Argument]) -> MagicError:
    """Arguments that are needed were not given."""
    names = ", ".join(argument.shown for argument in needed)
    return MagicError(f"{command.magic} needs {names}.", fix=_usage(command))


def unknown_word(command: Subcommand, word: str) -> MagicError:
    """A word that the subcommand does not know, or has no place for."""
    name = word.partition("=")[0]
    if not word.startswith("-"):
        return MagicError(f"{command.magic} has no place for {word!r}.", fix=_usage(command))
    flags = [flag for argument in command.arguments for flag in argument.flags]
    near = _ELSEWHERE.get(name, "")
    near = near if near in flags else (closest(name, flags) or "")
    return MagicError(
        f"{command.magic} has no flag {name}.", fix=f"Did you mean {near}?" if near else _usage(command)
    )


def _usage(command: Subcommand) -> str:
    words = [a.shown for a in command.arguments if not a.rest and (not a.flags or a.required or a.unless)]
    if any(a.flags and not a.required and not a.unless for a in command.arguments):
        words.append("[FLAGS]")
    if command.rest is not None:  # it takes all that follows, flags too
        words.append(command.rest.shown)
    return f"Usage: {' '.join([command.magic, *words])}; see {command.magic} --help."


_SAID = re.compile(r"argument (?P<name>\S+?): (?P<what>.*)", re.DOTALL)
_CHOICE = re.compile(r"invalid choice: '(?P<word>.*?)' \(choose from (?P<names>.*)\)", re.DOTALL)
_AGAINST = re.compile(r"not allowed with argument (?P<other>\S+)")


def mended(command: Subcommand, message: str) -> MagicError:
    """What argparse said, as what happened and what to do."""
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
    if what.startswith("expected"):  # one argument, or two
        needed = "a value" if "one" in what else "KEY and VALUE"
        return MagicError(f"{name} of {command.magic} needs {needed}.", fix=_usage(command))
    return MagicError(f"{name} of {command.magic} {what}.", fix=f"See {command.magic} --help.")
