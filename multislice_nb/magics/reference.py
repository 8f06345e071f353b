"""Help texts made from the table: `--help`, the docstring that `%multislice?` shows, Markdown for the README."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from multislice_nb.magics.grammar import CELL, GROUPS, SUBCOMMANDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from multislice_nb.magics.arguments import Argument, Subcommand

__all__ = ["Help", "argument_help", "command_help", "markdown", "overview"]

_WIDTH = 100
_WITH_BODY = [command.name for command in SUBCOMMANDS if command.body is not None]


class Help(str):
    """A help text, shown as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def overview(group: str = "", prefix: str = "%multislice") -> Help:
    """All subcommands in a line each; or those that begin with one word."""
    rows = [
        (command.name, command.summary)
        for command in SUBCOMMANDS
        if not group or command.name.split()[0] == group
    ]
    if group:
        usage = f"Usage: {prefix} {group} {{{','.join(GROUPS[group])}}} …"
        return Help("\n".join([usage, "", *_columns(rows), "", f"More: {prefix} {group} ACTION --help."]))
    lines = [
        "Cloud TPU Multislice from a notebook.",
        "",
        "%multislice SUBCOMMAND …     one of those below; status if left out",
        "%%multislice [FLAGS]         runs the cell on every worker of the attached cluster",
        f"%%multislice SUBCOMMAND …    with the cell as its text: {', '.join(_WITH_BODY)}",
        "",
        *_columns(rows),
        "",
        "In the line $name and {expression} are replaced, in a cell's body nothing is.",
        "More: %multislice SUBCOMMAND --help, and %%multislice --help.",
    ]
    return Help("\n".join(lines))


def command_help(command: Subcommand) -> Help:
    """One subcommand: usage, arguments, examples."""
    lines = [f"Usage: {_usage(command)}", "", command.summary]
    positionals = [(a.metavar or a.name.upper(), _described(a)) for a in command.arguments if not a.flags]
    flags = [(_spelling(a), _described(a)) for a in command.arguments if a.flags]
    for title, rows in (("Arguments", positionals), ("Flags", flags)):
        if rows:
            lines += ["", f"{title}:", *_columns(rows)]
    if command.body is not None:
        below = f"%{command.magic} takes it from the cell below: {command.body.help[0].lower()}{command.body.help[1:]}."
        lines += ["", *textwrap.wrap(below, _WIDTH)]
    if command.examples:
        lines += ["", "Examples:", *(f"  {command.magic} {example}".rstrip() for example in command.examples)]
    if command.python:
        lines += ["", f"In Python: {command.python}"]
    return Help("\n".join(lines))


def argument_help(command: Subcommand, argument: Argument) -> Help:
    """One flag, and below it the subcommand that it belongs to."""
    return Help(
        "\n".join([*_columns([(_spelling(argument), _described(argument))]), "", command_help(command)])
    )


def markdown() -> str:
    """The whole reference, for the README."""
    parts = ["| Magic | What it does | In Python |", "|---|---|---|"]
    parts += [
        f"| `{command.magic}` | {_cell(command.summary)} | `{_cell(command.python)}` |"
        for command in (*SUBCOMMANDS, CELL)
    ]
    for command in (*SUBCOMMANDS, CELL):
        if command.arguments:
            parts += ["", f"#### `{command.magic}`", "", f"`{_usage(command)}`", ""]
            parts += ["| Argument | |", "|---|---|"]
            parts += [f"| `{_cell(_spelling(a))}` | {_cell(_described(a))} |" for a in command.arguments]
    return "\n".join(parts) + "\n"


def _usage(command: Subcommand) -> str:
    words = [command.magic]
    # What takes the rest of the line comes last.
    for argument in sorted(command.arguments, key=lambda argument: argument.rest):
        several = argument.many or argument.rest or argument.named
        shown = f"{argument.shown} …" if several else argument.shown
        needed = argument.required or not argument.flags
        words.append(shown if needed else f"[{shown}]")
    optional = [word for word in words if word.startswith(("[--", "[-o"))]
    if len(optional) > 6:
        rest = words[-1:] if command.rest is not None else []
        others = words[: len(words) - len(rest)]
        words = [*(word for word in others if word not in optional), "[FLAGS]", *rest]
    return " ".join(words)


def _spelling(argument: Argument) -> str:
    if not argument.flags:
        return argument.shown
    value = argument.shown.removeprefix(argument.flags[0])
    return ", ".join(argument.flags) + value


def _described(argument: Argument) -> str:
    needed = " (required)" if argument.required and argument.flags else ""
    among = f": {' or '.join(argument.choices)}" if argument.choices and not argument.flags else ""
    return f"{argument.help}{among}{needed}"


def _columns(rows: Iterable[tuple[str, str]]) -> list[str]:
    rows = list(rows)
    width = min(36, max(len(name) for name, _ in rows)) + 4
    lines = []
    for name, text in rows:
        wrapped = textwrap.wrap(text, _WIDTH - width) or [""]
        first = f"  {name}".ljust(width)
        if len(first) > width:
            lines += [first, *(" " * width + line for line in wrapped)]
        else:
            lines += [first + wrapped[0], *(" " * width + line for line in wrapped[1:])]
    return lines


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
