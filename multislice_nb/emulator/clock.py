"""The emulator's time: real time, the pace of the lifecycle, and a hand to move it forward.

A queued resource that is valid for six hours cannot be waited for in a test; so the clock can be advanced,
and everything that waits for a moment wakes up.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

# Seconds at a time factor of 1; together about a second from request to ACTIVE.
ACCEPT = 0.05
WAIT_FOR_RESOURCES = 0.3
CREATE_NODE = 0.5
STOP_NODE = 0.2
START_NODE = 0.3
RESET_NODE = 0.3
DELETE = 0.1
SUSPEND = 0.2
MAINTENANCE = 0.4
REPAIR = 0.3


class Clock:
    """Emulated time in seconds since the epoch.

    Args:
        factor: How much longer than the emulator's usual second the steps of the lifecycle take; 0 is at once.
    """

    def __init__(self, factor: float = 1.0) -> None:
        self.factor = factor
        self._offset = 0.0
        self._moved = asyncio.Event()

    def now(self) -> float:
        """The time that the API shows."""
        return time.time() + self._offset

    def advance(self, seconds: float) -> None:
        """Move time forward and wake whatever waits for a moment that has passed."""
        self._offset += seconds
        self._moved.set()
        self._moved = asyncio.Event()

    async def step(self, seconds: float) -> None:
        """Take a step of the lifecycle, scaled by the time factor."""
        await asyncio.sleep(seconds * self.factor)

    async def until(self, moment: float) -> None:
        """Wait for a moment of emulated time, which is not scaled."""
        while (left := moment - self.now()) > 0:
            moved = self._moved
            try:
                async with asyncio.timeout(min(left, 3600.0)):
                    await moved.wait()
            except TimeoutError:
                continue


def timestamp(moment: float) -> str:
    """RFC 3339 in UTC with microseconds, as protobuf's JSON wants it."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_timestamp(text: str) -> float:
    """Seconds since the epoch of an RFC 3339 timestamp."""
    return datetime.fromisoformat(text).timestamp()


def parse_duration(text: str) -> float:
    """Seconds of a protobuf JSON duration such as "21600s"."""
    return float(text.removesuffix("s"))
