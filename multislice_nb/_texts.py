"""Numbers, times and guesses as people write them, the same in every sentence, table and figure."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["did_you_mean", "grouped", "lasted"]


def did_you_mean(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """`Did you mean fsdp?`; empty where nothing that is known is like the word.

    Args:
        word: What somebody wrote.
        known: What there is.
        cutoff: How alike it must be, from 0 to 1, as difflib has it.
    """
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return f"Did you mean {near[0]}?" if near else ""


def grouped(number: float) -> str:
    """A whole number in groups of three digits: `176 000`."""
    return f"{number:,.0f}".replace(",", " ")


def lasted(seconds: float) -> str:
    """How long something took, to about a hundredth: `0.4 s`, `42 s`, `2 min 31 s`, `1 h 20 min`.

    `cloud.times.short` is coarser, for what is still waited for.
    """
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
