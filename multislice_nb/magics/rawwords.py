"""The words of a line as they are written, for what is handed on whole: a shell command, a pasted gcloud line."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multislice_nb.magics.arguments import Argument, Subcommand

__all__ = ["HELP", "pasted", "with_rest"]

HELP = ("--help", "-h")

_WORD = re.compile(r"""\s*((?:\\.|'[^']*'|"(?:\\.|[^"\\])*"|[^\s'"\\])+)""", re.DOTALL)


def with_rest(command: Subcommand, text: str) -> tuple[list[str], str]:
    """Flags and words by their place, then, from the first word that is neither, the rest as it is written.

    Args:
        command: A subcommand that takes the rest of its line; a `--` before it is left out.
        text: What follows its name.
    """
    tokens: list[str] = []
    places = len(command.positionals)
    at = 0
    while found := _WORD.match(text, at):
        word = found[1]
        argument = command.flag(word.partition("=")[0])
        if word == "--":
            return tokens, text[found.end() :].strip()
        if argument is None and not word.startswith("-"):
            if not places:
                break
            places -= 1
        tokens.append(_plain(word))
        at = found.end()
        for _ in range(_values_after(argument, word)):
            value = _WORD.match(text, at)
            if value is not None:
                tokens.append(_plain(value[1]))
                at = value.end()
    return tokens, text[at:].strip()


def pasted(command: Subcommand, text: str) -> tuple[list[str], str]:
    """Our own flags, wherever they stand, and the pasted command of another tool without them.

    Args:
        command: The subcommand that the command is pasted after.
        text: What follows its name.

    Returns:
        Words for the subcommand, and the command as it is written; empty where there is none.
    """
    tokens: list[str] = []
    kept: list[str] = []
    words = [found[1] for found in _WORD.finditer(text)]
    while words:
        word = words.pop(0)
        argument = command.flag(word.partition("=")[0])
        if argument is None or argument.name not in command.ours:
            kept.append(word)
            continue
        tokens.append(_plain(word))
        tokens += [_plain(words.pop(0)) for _ in range(min(_values_after(argument, word), len(words)))]
    whole = _plain(kept[0]).strip() if len(kept) == 1 else " ".join(kept)
    return (tokens, whole) if whole.removeprefix("$ ").startswith(f"{command.pasted} ") else ([], "")


def _values_after(argument: Argument | None, word: str) -> int:
    """How many words belong to a flag that is written so."""
    return argument.words - ("=" in word) if argument is not None and argument.words else 0


def _plain(word: str) -> str:
    """A word without its quotation marks."""
    return " ".join(shlex.split(word))
