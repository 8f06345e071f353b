"""What tells in a log that something went wrong."""

from __future__ import annotations

import re

__all__ = ["ERRORS", "TRACEBACK", "first_error"]

ERRORS = (
    r"^([\w.]*(Error|Exception)\b(.*:|[ \r]*$)"  # Python's last words; MemoryError and some others say no more
    r"|Fatal Python error: |terminate called after throwing |.*\b(FATAL|Check failed)\b)"
)
"""A regular expression for lines that look like errors."""

TRACEBACK = "Traceback (most recent call last)"
"""The head of a traceback: what the error calls itself, behind it, says more."""

_LONGEST = 200
_PATTERNS = tuple(re.compile(f"(?m){pattern}.*".encode()) for pattern in (ERRORS, f"^{re.escape(TRACEBACK)}"))


def first_error(text: bytes) -> str:
    """The first line that looks like an error, shortened; empty where there is none."""
    found = next(filter(None, (pattern.search(text) for pattern in _PATTERNS)), None)
    return found[0][:_LONGEST].decode(errors="replace").strip() if found else ""
