"""Which calls are sent again, and how long.

The client library's own retry does the waiting, with exponential back-off and jitter. A quota that is used up
has the same status code as too many requests, and does not get better by asking again.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.api_core.retry import AsyncRetry

__all__ = ["is_transient", "retrying"]

_RATE = re.compile(r"per (minute|second|day)|too many requests|\brate\b|try again later", re.IGNORECASE)


def is_transient(error: BaseException) -> bool:
    """Whether the same call may well succeed in a moment: 503, lost answers, too many requests."""
    from google.api_core.exceptions import (
        Aborted,
        DeadlineExceeded,
        ResourceExhausted,
        ServiceUnavailable,
        TooManyRequests,
    )

    if isinstance(error, (ResourceExhausted, TooManyRequests)):
        # The message alone: details name a limit such as defaultPerMinutePerProject also where it is a rate.
        by_words = bool(_RATE.search(error.message)) and "PerProject" not in error.message
        return by_words or error.reason == "RATE_LIMIT_EXCEEDED"
    return isinstance(error, (ServiceUnavailable, DeadlineExceeded, Aborted))


def retrying(seconds: float) -> AsyncRetry:
    """The client library's retry for a call that may be repeated.

    Args:
        seconds: After that long the last error is raised.
    """
    from google.api_core.retry import AsyncRetry

    return AsyncRetry(predicate=is_transient, initial=0.3, maximum=8.0, multiplier=1.7, timeout=seconds)
