"""What a subcommand takes: the pieces of the grammar's table, and how their words are read."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "Argument",
    "Subcommand",
    "count",
    "integer",
    "integers",
    "number",
    "pairs",
    "ranks",
    "seconds",
    "words",
]


def words(text: str) -> tuple[str, ...]:
    """`a,b` as gcloud's lists are written."""
    found = tuple(word.strip() for word in text.split(",") if word.strip())
    if not found:
        raise argparse.ArgumentTypeError("takes words with commas between them")
    return found


def integer(text: str) -> int:
    """A whole number, as `131072` or `131_072`; a comma would separate two."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"takes a whole number, not {text!r}") from None


def count(text: str, *, least: int = 1) -> int:
    """A whole number of things that are counted."""
    value = integer(text)
    if value < least:
        raise argparse.ArgumentTypeError(f"takes a whole number, {least} or more, not {text!r}")
    return value


def integers(text: str) -> tuple[int, ...]:
    """`64,128,256`."""
    return tuple(integer(word) for word in words(text))


def number(text: str) -> float:
    """A finite number."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not abs(value) < float("inf"):
        raise argparse.ArgumentTypeError(f"takes a number, not {text!r}")
    return value


def seconds(text: str) -> float:
    """A time of 0 seconds or more."""
    value = number(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"takes seconds, 0 or more, not {text!r}")
    return value


def pairs(text: str) -> dict[str, str]:
    """`KEY=VALUE,KEY=VALUE`, as gcloud's labels and metadata are written.

    As with `gcloud topic escaping`, `^:^a=1,2:b=3` names another separator than the comma.
    """
    separator = ","
    if text.startswith("^") and "^" in text[1:]:
        separator, _, text = text[1:].partition("^")
    found = {}
    for word in text.split(separator or ","):
        key, equals, value = word.partition("=")
        if not key.strip() or not equals:
            raise argparse.ArgumentTypeError(f"takes KEY=VALUE with commas between them, not {word!r}")
        found[key.strip()] = value
    return found


def ranks(text: str) -> tuple[int, ...]:
    """`0,2-3`: ranks and ranges of ranks, both ends included."""
    found: set[int] = set()
    for word in words(text):
        first, dash, last = word.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and int(last) < int(first)):
            raise argparse.ArgumentTypeError(f"takes ranks as 0,2-3, not {text!r}")
        found.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument of a subcommand.

    Attributes:
        name: Its keyword in Python.
        help: What it is for, in a few words.
        flags: Its spellings, the first one shown; none for an argument that is told by its place.
        convert: Reads its word.
        metavar: What stands for its value in help texts.
        switch: Whether it takes no value: it is True when it is there.
        many: Whether a positional argument takes several words.
        required: Whether it must be given.
        choices: The only values it can have.
        values: Which values Tab offers: a key of `values.SOURCES`.
        excludes: Arguments of the same group exclude each other.
        unless: Names of arguments; it must be given if none of them is.
        named: Whether it takes a name and a value, any number of times, as `-p KEY VALUE`.
        rest: Whether it takes all that is left of the line, as it is written.
    """

    name: str
    help: str
    flags: tuple[str, ...] = ()
    convert: Callable[[str], Any] = str
    metavar: str = ""
    switch: bool = False
    many: bool = False
    required: bool = False
    choices: tuple[str, ...] = ()
    values: str = ""
    excludes: str = ""
    unless: tuple[str, ...] = ()
    named: bool = False
    rest: bool = False

    def but(self, **changes: Any) -> Argument:
        """The same with something else about it."""
        return replace(self, **changes)

    @property
    def words(self) -> int:
        """How many words it takes after its flag."""
        return 0 if self.switch else 2 if self.named else 1

    @property
    def shown(self) -> str:
        """As usage texts write it: `--zone ZONE` or `NAME`."""
        if self.switch:
            return self.flags[0]
        value = "KEY VALUE" if self.named else self.metavar or self.name.upper()
        if self.choices:
            value = "{" + ",".join(self.choices) + "}"
        if self.flags:
            return f"{self.flags[0]} {value}"
        return value if self.required or self.unless else f"[{value}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subcommand:
    """A word after `%multislice`, or two, as in `job submit`.

    Attributes:
        name: The words.
        summary: What it does, in one sentence.
        arguments: What it takes.
        examples: Lines to show, without `%multislice`.
        python: The same in plain Python.
        cell: Whether it is the cell magic's own line rather than a subcommand.
        body: What a cell below it is, if it takes one: `%%multislice sh`.
        pasted: A command of another tool that can be pasted after it, by its first word.
        ours: Arguments that such a command knows nothing of, and that stand before or behind it.
        left: What is left when it is interrupted, and goes on; where it is left out, nothing.
        prefix: What is typed before its name.
    """

    name: str
    summary: str
    arguments: tuple[Argument, ...] = ()
    examples: tuple[str, ...] = ()
    python: str = ""
    cell: bool = False
    body: Argument | None = None
    pasted: str = ""
    ours: tuple[str, ...] = ()
    left: str = ""
    prefix: str = "%multislice"

    @property
    def magic(self) -> str:
        """How a line with it begins."""
        return "%%multislice" if self.cell else f"{self.prefix} {self.name}"

    def but(self, **changes: Any) -> Subcommand:
        """The same with something else about it."""
        return replace(self, **changes)

    @property
    def method(self) -> str:
        """The method that does it."""
        return self.name.replace("-", "_").replace(" ", "_")

    @property
    def rest(self) -> Argument | None:
        """The argument that takes all that is left of the line."""
        return next((argument for argument in self.arguments if argument.rest), None)

    def flag(self, word: str) -> Argument | None:
        """The argument that is spelt so."""
        return next((argument for argument in self.arguments if word in argument.flags), None)

    @property
    def positionals(self) -> tuple[Argument, ...]:
        """Arguments told by their place, the rest of the line left out."""
        return tuple(argument for argument in self.arguments if not argument.flags and not argument.rest)
