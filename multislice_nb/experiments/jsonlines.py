"""Files of JSON Lines that survive being cut short: each row is on disk before the next is made."""

from __future__ import annotations

import json
import os
import tempfile
from typing import TYPE_CHECKING, Any

from multislice_nb.errors import ExperimentError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def append(path: Path, row: Mapping[str, Any]) -> None:
    """Add a row, and have it on disk before returning. Folders are made as needed.

    Raises:
        ExperimentError: The file cannot be written.
    """
    line = json.dumps(row, allow_nan=False) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as file:
            file.write(_missing_newline(file.fileno()) + line.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise ExperimentError(
            f"The results file {path} cannot be written: {error.strerror}.",
            fix="Give another path; what was measured so far is in it.",
        ) from error


def check_writable(path: Path) -> None:
    """Refuse a file to which no row could be added, before there is one to add. Nothing is made.

    Raises:
        ExperimentError: It could not be written.
    """
    try:
        if path.exists():
            path.open("ab").close()
        else:
            folder = next(one for one in path.absolute().parents if one.exists())
            tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise ExperimentError(
            f"The results file {path} cannot be written: {error.strerror}.", fix="Give another path."
        ) from error


def read(path: Path, *required: str) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """All rows of a file, and a sentence for each line that is not one.

    Args:
        path: The file.
        required: Names that a row must have.

    Raises:
        ExperimentError: There is no such file, or it cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ExperimentError(
            f"The results file {path} cannot be read: {error.strerror}.",
            fix="Give the path of a file that a sweep has written.",
        ) from error
    rows, problems = [], []
    for number, line in enumerate(text.split("\n"), 1):
        row = _row(line, required)
        if row is not None:
            rows.append(row)
        elif line.strip():
            problems.append(
                f"Line {number} of {path.name} is not a row of results and is left out: {line[:60]!r}"
            )
    return rows, tuple(problems)


def _row(line: str, required: tuple[str, ...]) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and all(name in row for name in required) else None


def _missing_newline(descriptor: int) -> bytes:
    """What keeps a new row apart from a line that was cut short."""
    size = os.fstat(descriptor).st_size
    return b"\n" if size and os.pread(descriptor, 1, size - 1) != b"\n" else b""
