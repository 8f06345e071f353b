"""Whether the script that a command runs is among the code that goes with it: said before slices are asked for."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from multislice_nb._texts import did_you_mean
from multislice_nb.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["require_script"]

_INTERPRETER = re.compile(r"(python[\d.]*|bash|sh)")
_FILE = re.compile(r"[\w.-][\w./-]*\.(py|sh)")


def require_script(command: str, files: Sequence[str] | None) -> None:
    """Refuse a command whose script is not there.

    Only what is certain is refused: one plain command, an interpreter with a relative path.

    Args:
        command: The shell command.
        files: What goes with it, relative to its folder; None where the job has no folder.

    Raises:
        InvalidRequestError: Its script is not among them.
    """
    script = _script(command)
    if script is None or script in (files or ()):
        return
    if files is None:
        raise InvalidRequestError(
            f"The command runs {script}, and no code goes with the job.",
            fix="Name the folder that holds it: folder='.', or --folder . on the command line.",
        )
    fix = "Name it as it is seen from there; what .gitignore names does not go with a job."
    raise InvalidRequestError(
        f"The command runs {script}, which is not in the job's folder.",
        fix=f"{did_you_mean(script, files)} {fix}".lstrip(),
    )


def _script(command: str) -> str | None:
    """The script of a plain command; None where there is none, or a shell may make one."""
    if re.search(r"[;&|<>()$`\n*?]", command):
        return None
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    words = words[1:] if words[:1] == ["exec"] else words
    if len(words) < 2 or not _INTERPRETER.fullmatch(words[0].rsplit("/", 1)[-1]):
        return None
    after = next((word for word in words[1:] if word not in {"-u", "-B", "-O", "-e", "-x"}), "")
    return after.removeprefix("./") if _FILE.fullmatch(after) else None
