"""From text copied off a page or a terminal to the words of its gcloud command.

The shell's quoting is left to `shlex`; before it, one pass over the text does what a shell does and `shlex`
does not: continuation lines, variables, comments and the ends of statements. Nothing is ever run.
"""

from __future__ import annotations

import os
import re
import shlex
from typing import TYPE_CHECKING

from multislice_nb.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Paste", "read_paste"]

_END = "\x00"
_PIECES = re.compile(
    r"""
      (?P<continuation> \\\r?\n )
    | (?P<escape>       \\. )
    | (?P<single>       '[^']*' )
    | (?P<double>       "(?:\\.|[^"\\])*" )
    | (?P<command>      \$\( | ` )
    | (?P<prompt>       ^[ \t]*\$[ \t]+ )
    | (?P<comment>      (?:(?<=\s)|^)\#[^\n]* )
    | (?P<optional>     \[\s*--[^\]]*\] )
    | (?P<variable>     \$(?:\{(?P<braced>\w+)\}|(?P<bare>[A-Za-z_]\w*)) )
    | (?P<end>          ;|&&|\r?\n )
    """,
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)
_INSIDE = re.compile(
    r"(?P<escape>\\.)|(?P<command>\$\(|`)|\$(?:\{(?P<braced>\w+)\}|(?P<bare>[A-Za-z_]\w*))", re.DOTALL
)
_ONE_VARIABLE = re.compile(r"'\$\{(\w+)\}'")
_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>.*)", re.DOTALL)


class Paste:
    """What a pasted text says.

    Attributes:
        statements: The words of each statement that is no assignment.
        variables: What the text itself assigned, with or without `export`.
    """

    def __init__(self) -> None:
        self.statements: list[list[str]] = []
        self.variables: dict[str, str] = {}


def read_paste(text: str, variables: Mapping[str, str] | None = None) -> Paste:
    """Read the statements of a pasted text.

    Args:
        text: Commands as they stand on a page: with prompts, continuation lines, `export` lines and optional
            flags in brackets, which are left out.
        variables: Values of shell variables; the environment when None. Assignments in the text come first.

    Raises:
        InvalidRequestError: A variable has no value, a quotation is not closed, or a command would have to
            be run to know what is meant.
    """
    known = dict(os.environ if variables is None else variables)
    paste = Paste()
    unknown: set[str] = set()
    for part in _statements(text):
        words = _words(_expanded(part, known, unknown))
        assigned = _assignments(words)
        if assigned is not None:
            known.update(assigned)
            paste.variables.update(assigned)
        elif words and words[0].startswith(("-", "[")) and paste.statements:
            paste.statements[-1] += words  # a page that forgot its backslash
        elif words:
            paste.statements.append(words)
    if unknown:
        names = ", ".join(sorted(unknown))
        raise InvalidRequestError(
            f"The command uses shell variables that have no value here: {names}.",
            fix=f"Paste their `export NAME=…` lines with it, or pass variables={{{min(unknown)!r}: …}}.",
        )
    return paste


def _statements(text: str) -> list[str]:
    """The text cut at the ends of statements, with continuation lines joined and comments left out."""

    def mark(found: re.Match[str]) -> str:
        kind = found.lastgroup if found.lastgroup not in {"braced", "bare"} else "variable"
        if kind == "continuation":
            return " "
        if kind in {"prompt", "comment", "optional"}:
            return ""
        return _END if kind == "end" else found[0]

    return [part for part in _PIECES.sub(mark, text).split(_END) if part.strip()]


def _expanded(text: str, known: Mapping[str, str], unknown: set[str]) -> str:
    """The statement with its variables filled in, quoted so that each stays one word."""

    def value(name: str) -> str:
        if name not in known:
            unknown.add(name)
        return known.get(name, "")

    def inside(found: re.Match[str]) -> str:
        if found["escape"]:
            # shlex knows \\" and \\ inside double quotes; a shell knows \\$ and \\` as well.
            return found[0][1:] if found[0][1] in "$`" else found[0]
        _refuse_command(found)
        return re.sub(r'([\\"])', r"\\\1", value(found["braced"] or found["bare"]))

    def outside(found: re.Match[str]) -> str:
        if found["double"]:
            return _INSIDE.sub(inside, found[0])
        if found["single"]:
            # The overview itself writes '${STARTUP_SCRIPT}' where it means the variable's value.
            alone = _ONE_VARIABLE.fullmatch(found[0])
            return shlex.quote(known[alone[1]]) if alone and alone[1] in known else found[0]
        _refuse_command(found)
        if found["variable"]:
            return shlex.quote(value(found["braced"] or found["bare"]))
        return found[0]

    return _PIECES.sub(outside, text)


def _refuse_command(found: re.Match[str]) -> None:
    if found["command"]:
        raise InvalidRequestError(
            "The text has a command substitution, and nothing of a pasted text is ever run.",
            fix="Replace $(…) by its result.",
        )


def _words(text: str) -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InvalidRequestError(
            f"The command cannot be read: {error}.", fix="Check its quotation marks."
        ) from error
    # A backslash before a blank, where a page meant a continuation line, leaves the blank before the flag.
    return [word.lstrip() if word.lstrip().startswith("--") else word for word in words]


def _assignments(words: list[str]) -> dict[str, str] | None:
    """What a statement of assignments assigns; None for any other statement."""
    rest = words[1:] if words[:1] == ["export"] else words
    found = [_ASSIGNMENT.fullmatch(word) for word in rest]
    if not rest or not all(found):
        return None
    return {match["name"]: match["value"] for match in found if match}
