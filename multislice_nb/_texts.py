"""Numbers and times as people write them, the same in every sentence, table and figure."""

from __future__ import annotations

__all__ = ["grouped", "lasted"]


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
