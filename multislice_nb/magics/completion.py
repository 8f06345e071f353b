"""Tab after `%multislice`: subcommands, flags and values, from the table."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from IPython.core.completer import SimpleCompletion

from multislice_nb.magics.grammar import CELL, GROUPS, SUBCOMMANDS, subcommand
from multislice_nb.magics.lines import CELL_LINE, LINE, addressed, logical_line
from multislice_nb.magics.values import SOURCES, Asked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from IPython.core.completer import CompletionContext

    from multislice_nb.magics.arguments import Argument, Subcommand
    from multislice_nb.widgets.session import Session

__all__ = ["VARIABLE", "Completion"]

VARIABLE = re.compile(r"[${](?P<name>\w*)$")
"""A variable of the user's that is being written."""
_LISTS = {"capacities", "generations", "strategies", "zones"}
"""Arguments that take several values with commas between them."""


_FIRST = tuple(dict.fromkeys(command.name.split()[0] for command in SUBCOMMANDS))
"""Words that may follow `%multislice`."""


class Completion:
    """What to offer for a line.

    Args:
        session: What the magics have at hand.
        variables: The user's namespace.
    """

    def __init__(self, session: Session, variables: Mapping[str, Any]) -> None:
        self._session = session
        self._variables = variables

    def matches(self, context: CompletionContext) -> dict[str, Any] | None:
        """What IPython takes from a matcher; None where `offer` says nothing."""
        found = self.offer(logical_line(context.full_text, context.cursor_line, context.cursor_position))
        if found is None:
            return None
        fragment, words = found
        return {
            "completions": [SimpleCompletion(text=word, type="magic") for word in words],
            "matched_fragment": fragment,
            "suppress": True,
            "ordered": True,
        }

    def offer(self, line: str) -> tuple[str, list[str]] | None:
        """What fits at the end of a line.

        Returns:
            The word that is being written and the words that begin like it; None where this is no
            `%multislice`, or where a file is meant, which IPython knows to complete.
        """
        cell, own = CELL_LINE.match(line), LINE.match(line)
        match = cell or own
        if match is None or not match["rest"]:
            return None
        *before, fragment = re.split(r"\s+", match["rest"].lstrip())
        variable = VARIABLE.search(fragment)
        if own and variable:
            return variable["name"], _beginning(variable["name"], SOURCES["variables"](self._asked({})))
        if cell:
            return self._below(before, fragment)
        if not before:
            return fragment, _beginning(fragment, [*_FIRST, "--help"])
        if before[0] in GROUPS and len(before) == 1:
            alone = subcommand(before[0])
            flags = _flags(alone, {}) if alone is not None else []
            return fragment, _beginning(fragment, [*GROUPS[before[0]], *flags])
        found = addressed(before)
        return (fragment, []) if found is None else self._arguments(*found, fragment)

    def _below(self, before: Sequence[str], fragment: str) -> tuple[str, list[str]] | None:
        """After `%%multislice`: flags of a cell, or a subcommand that takes one."""
        found = addressed(before)
        if found is not None and found[0].body is not None:
            return self._arguments(*found, fragment)
        names = [command.name for command in SUBCOMMANDS if command.body is not None]
        starts = [name.split()[len(before)] for name in names if name.split()[: len(before)] == [*before]]
        words = _beginning(fragment, starts) if fragment or before else []
        return (fragment, words) if words else self._arguments(CELL, before, fragment)

    def _asked(self, given: Mapping[str, str]) -> Asked:
        return Asked(self._session, self._variables, given)

    def _arguments(
        self, command: Subcommand, before: Sequence[str], fragment: str
    ) -> tuple[str, list[str]] | None:
        given, places = _given(command, before)
        flag, equals, value = fragment.partition("=")
        if equals and command.flag(flag):
            return self._values(command.flag(flag), given, value)
        pending = _pending(command, before, given)
        if pending is not None:
            return self._values(pending, given, fragment)
        if fragment.startswith("-"):
            return fragment, _beginning(fragment, _flags(command, given))
        if command.rest is not None and places > len(command.positionals):
            return None  # a shell command has begun: its words are files, if anything
        positional = _next_positional(command, places)
        if positional is not None:
            found = self._values(positional, given, fragment)
            if found is None or found[1]:
                return found
        return fragment, ([] if fragment else _flags(command, given))

    def _values(
        self, argument: Argument | None, given: Mapping[str, str], fragment: str
    ) -> tuple[str, list[str]] | None:
        if argument is None or argument.values == "files":
            return None
        if argument.choices:
            return fragment, _beginning(fragment, argument.choices)
        source = SOURCES.get(argument.values)
        if source is None:
            return fragment, []
        words = source(self._asked(given))
        if argument.values in _LISTS:
            before, _, fragment = fragment.rpartition(",")
            words = [word for word in words if word not in before.split(",")]
        found = _beginning(fragment, words)
        return None if argument.values == "results" and not found else (fragment, found)


def _given(command: Subcommand, words: Sequence[str]) -> tuple[dict[str, str], int]:
    """What is on the line by its name, and how many words stand by their place."""
    given: dict[str, str] = {}
    places = 0
    rest = iter(words)
    for word in rest:
        flag, equals, value = word.partition("=")
        argument = command.flag(flag)
        if argument is None and word.startswith("-"):
            continue
        if argument is None:
            place = _next_positional(command, places)
            if place is not None:
                given[place.name] = word
            places += 1
        elif argument.switch:
            given[argument.name] = ""
        else:
            values = [value] if equals else []
            values += [next(rest, "") for _ in range(argument.words - len(values))]
            given[argument.name] = values[-1]
    return given, places


def _pending(command: Subcommand, before: Sequence[str], given: dict[str, str]) -> Argument | None:
    """The argument whose value comes next; of one that takes a name and a value, what either can be."""
    for distance, word in enumerate(reversed(before[-2:])):
        argument = command.flag(word)
        if argument is None or distance >= argument.words:
            continue
        if not distance:
            return argument
        given["parameter"] = before[-1]
        return argument.but(values="defaults" if argument.values == "parameters" else "")
    return None


def _flags(command: Subcommand, given: Mapping[str, str]) -> list[str]:
    """Flags that can still be given, the required ones first."""
    taken = {a.excludes for a in command.arguments if a.excludes and a.name in given}
    free = [
        a
        for a in command.arguments
        if a.flags and (a.named or a.name not in given) and a.excludes not in taken
    ]
    return [a.flags[0] for a in sorted(free, key=lambda a: not a.required)] + ["--help"]


def _next_positional(command: Subcommand, places: int) -> Argument | None:
    positionals = command.positionals
    if places < len(positionals):
        return positionals[places]
    return positionals[-1] if positionals and positionals[-1].many else None


def _beginning(fragment: str, words: Sequence[str]) -> list[str]:
    return [word for word in words if word.startswith(fragment)]
