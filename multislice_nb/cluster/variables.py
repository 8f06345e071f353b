"""Environment variables for the engines and commands of workers: read from a file, and set in running engines."""

from __future__ import annotations

import os
import re
import shlex
from typing import TYPE_CHECKING

from multislice_nb import errors

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["EARLY", "apply", "check", "parse"]

EARLY = ("XLA_", "LIBTPU_", "TPU_", "JAX_", "MEGASCALE_", "PYTHONPATH", "LD_")
"""Prefixes of names that are read before the first line of a cell, and so want a restart of the gang."""

OURS = ("MULTISLICE_NB_", "MEGASCALE_NUM_SLICES", "MEGASCALE_SLICE_ID", "MEGASCALE_COORDINATOR")
"""Prefixes of names that are computed anew at every start."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def parse(text: str) -> dict[str, str]:
    """Read an environment file: `NAME=value` a line, as a shell would, `export` and comments allowed.

    Raises:
        errors.InvalidRequestError: A line is none; says which.
    """
    found: dict[str, str] = {}
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip().removeprefix("export ").lstrip()
        if not line or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        try:
            words = shlex.split(value, comments=True)
        except ValueError as error:
            raise _refusal(number, f"its value is not closed ({error})") from error
        if not equals or not _NAME.fullmatch(name):
            raise _refusal(number, "it is not NAME=value")
        if len(words) > 1:
            raise _refusal(number, "a value with spaces needs quotes")
        found[name] = words[0] if words else ""
    return check(found)


def _refusal(number: int, why: str) -> errors.InvalidRequestError:
    # The line itself is not shown, for it may hold a secret.
    return errors.InvalidRequestError(
        f"Line {number} of the environment file cannot be read: {why}.", fix="Write NAME=value on each line."
    )


def check(variables: Mapping[str, str]) -> dict[str, str]:
    """Refuse names that are none, or that are computed anew at every start.

    Raises:
        errors.InvalidRequestError: Names them.
    """
    wrong = [name for name in variables if not _NAME.fullmatch(name)]
    ours = [name for name in variables if name.startswith(OURS)]
    if wrong or ours:
        why = "are no names of variables" if wrong else "are set anew at every start"
        raise errors.InvalidRequestError(f"{', '.join(wrong or ours)} {why}.", fix="Leave them out.")
    return {name: str(value) for name, value in variables.items()}


def apply(variables: dict[str, str], removed: list[str]) -> None:
    """In an engine: take over variables that were set, and drop those that are set no more.

    `PYTHONPATH` waits for the next start, which adds it to what our own packages are found by.
    """
    for name in set(removed) - {"PYTHONPATH"}:
        os.environ.pop(name, None)
    os.environ.update({name: value for name, value in variables.items() if name != "PYTHONPATH"})
