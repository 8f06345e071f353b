"""Durations and times as gcloud writes them, and as the API does.

gcloud's notation is `gcloud topic datetimes`: `6h`, `1d12h`, `90m`, `21600s`, or ISO 8601's `PT6H`. The API's
JSON has `21600s` and RFC 3339 times.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from multislice_nb.errors import InvalidRequestError

__all__ = ["format_duration", "format_json_duration", "format_time", "parse_duration", "parse_time", "short"]

_LONGEST = 100 * 365 * 86400.0
_UNITS = {"w": 604800, "d": 86400, "h": 3600, "m": 60, "s": 1}
_PARTS = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>[wdhms])")
_GCLOUD = re.compile(rf"(?:{_PARTS.pattern.replace('?P<number>', '?:').replace('?P<unit>', '?:')})+")
_ISO = re.compile(r"P(?:(?P<days>(?:\d+(?:\.\d+)?[WD])*))(?:T(?P<clock>(?:\d+(?:\.\d+)?[HMS])+))?")


def parse_duration(value: str | float | timedelta) -> timedelta:
    """A duration from gcloud's or ISO's notation, or a number of seconds.

    Raises:
        InvalidRequestError: It is neither.
    """
    if isinstance(value, timedelta):
        return _bounded(value.total_seconds(), str(value))
    text = str(value).strip()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return _bounded(float(text), text)
    lowered = text.lower()
    iso = _ISO.fullmatch(text.upper())
    if iso and len(text) > 2:
        lowered = f"{iso['days'] or ''}{iso['clock'] or ''}".lower()
    if not _GCLOUD.fullmatch(lowered):
        raise InvalidRequestError(
            f"{text!r} is no duration.", fix="Write it as gcloud does: 6h, 90m, 1d12h, 21600s or PT6H."
        )
    seconds = sum(float(part["number"]) * _UNITS[part["unit"]] for part in _PARTS.finditer(lowered))
    return _bounded(seconds, text)


def _bounded(seconds: float, text: str) -> timedelta:
    if not 0 <= seconds <= _LONGEST:
        raise InvalidRequestError(
            f"{text!r} is no duration that can be waited for.", fix="Give one from 0 to 100 years."
        )
    return timedelta(seconds=seconds)


def parse_time(value: str | datetime) -> datetime:
    """A time with its zone from ISO 8601; one without a zone is local time, as with gcloud.

    Raises:
        InvalidRequestError: It is no such time.
    """
    if isinstance(value, datetime):
        return value if value.tzinfo else value.astimezone()
    try:
        parsed = datetime.fromisoformat(str(value).strip())
        parsed = parsed if parsed.tzinfo else parsed.astimezone()
    except (ValueError, OverflowError) as error:
        raise InvalidRequestError(
            f"{value!r} is no time.", fix="Write it as ISO 8601: 2026-12-01T18:00:00Z."
        ) from error
    return parsed


def format_duration(duration: timedelta) -> str:
    """In gcloud's notation, exactly: `1d12h`, `90m` becomes `1h30m`, fractions stay."""
    seconds = duration.total_seconds()
    if seconds != int(seconds) or seconds < 1:
        return format_json_duration(duration)
    rest, parts = int(seconds), []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def format_json_duration(duration: timedelta) -> str:
    """As the API's JSON has it: `21600s`."""
    seconds = duration.total_seconds()
    return f"{int(seconds)}s" if seconds == int(seconds) else f"{seconds:.6f}".rstrip("0") + "s"


def format_time(time: datetime) -> str:
    """As the API's JSON and gcloud have it: RFC 3339 in UTC."""
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")


def short(duration: timedelta | float) -> str:
    """For people: `0.4 s`, `42 s`, `17 min`, `2 h 05 min`, `3 d 4 h`."""
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if seconds < 10:
        return f"{max(seconds, 0):.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    if seconds < 172800:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60):02d} min"
    return f"{int(seconds // 86400)} d {int(seconds % 86400 // 3600)} h"
