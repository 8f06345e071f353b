"""Bursts of errors and slowness in front of the API, made on purpose."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from multislice_nb.emulator.rpc import ApiError

_MESSAGES = {
    "RESOURCE_EXHAUSTED": "Quota exceeded for quota metric 'Requests' and limit 'Requests per minute'.",
    "UNAVAILABLE": "The service is currently unavailable.",
}


@dataclass
class Burst:
    """The next `count` calls (of one method, or of any) are refused."""

    status: str
    count: int
    method: str = ""


class ApiFaults:
    """What happens to calls before they reach the service."""

    def __init__(self) -> None:
        self.bursts: list[Burst] = []
        self.latency = 0.0

    async def before(self, method: str) -> None:
        """Delay or refuse a call, if that is what was asked for.

        Raises:
            ApiError: The refusal.
        """
        if self.latency:
            await asyncio.sleep(self.latency)
        for burst in self.bursts:
            if burst.method in {"", method}:
                burst.count -= 1
                if burst.count <= 0:
                    self.bursts.remove(burst)
                raise ApiError(burst.status, _MESSAGES.get(burst.status, "Injected by the emulator."))

    def clear(self) -> None:
        """Back to normal."""
        self.bursts.clear()
        self.latency = 0.0
