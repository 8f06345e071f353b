"""`$name` and `{expression}` in a line, filled in from the notebook as IPython does."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from IPython.utils.text import DollarFormatter

from multislice_nb.errors import MagicError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["filled"]

_NAME = re.compile(r"[^\W\d]\w*(\.\w+|\[[^\]]*\])*")
"""A variable, an attribute or an item; anything else in braces may stand for itself, as in `{a,b}.py`."""


def filled(shell: InteractiveShell, line: str, depth: int, *, strict: bool) -> str:
    """A line with its variables filled in.

    Args:
        shell: Whose variables.
        line: What follows `%multislice`.
        depth: Frames from the caller of this to the one whose variables count as well.
        strict: Whether a name that is not defined is a mistake. To a shell command it is not: `$HOME` is the
            workers'.

    Raises:
        MagicError: A name is not defined.
    """
    whole: str = shell.var_expand(line, depth + 1)
    if not strict or whole != line:
        return whole
    # IPython fills in all or nothing, and says nothing when it was nothing.
    for name in _names(line):
        alone = f"{{{name}}}"
        if shell.var_expand(alone, depth + 1) == alone:
            raise MagicError(
                f"{name} is not defined in this notebook.",
                fix="Define it first; what means itself is written $$ or {{ }}.",
            )
    return whole


def _names(line: str) -> Iterator[str]:
    try:
        for _, field, _, _ in DollarFormatter().parse(line):
            if field and _NAME.fullmatch(field):
                yield field
    except ValueError:  # braces that do not match are no expressions
        return
