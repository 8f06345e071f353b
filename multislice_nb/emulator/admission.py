"""Who gets chips, and when: capacity, quota, reservations, and a queue in order for each pool.

A request gets the chips for all of its slices or none. A pool is a zone and a TPU generation, or a
reservation; the first request in a pool's line that may start by now is served before those behind it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from multislice_nb.emulator.rpc import ApiError, not_found, quota_exceeded

if TYPE_CHECKING:
    from collections.abc import Iterable

    from multislice_nb.emulator.clock import Clock
    from multislice_nb.emulator.model import Admission

Pool = tuple[str, str, str]
UNLIMITED = float("inf")


class Waiting:
    """A place in the queue."""

    def __init__(self, admission: Admission, chips: int) -> None:
        self.admission = admission
        self.chips = chips
        self.granted = asyncio.Event()


class Admissions:
    """The chips of all zones.

    Attributes:
        limits: Chips by (zone, generation); without an entry there is no limit. "*" stands for all zones.
        reservations: Chips by the reservation's full name.
        quota: Chips by (generation, kind), per project and zone; without an entry there is no limit.
        queued_resource_quota: How many queued resources a project may have in a zone, dead ones included.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._used: dict[Pool, int] = {}
        self._queue: list[Waiting] = []
        self.limits: dict[tuple[str, str], float] = {}
        self.reservations: dict[str, float] = {}
        self.quota: dict[tuple[str, str], float] = {}
        self.queued_resource_quota: float = UNLIMITED

    def limit(self, pool: Pool) -> float:
        """The chips of a pool."""
        zone, generation, reservation = pool
        if reservation != "shared":
            return self.reservations.get(reservation, 0)
        return self.limits.get((zone, generation), self.limits.get(("*", generation), UNLIMITED))

    def used(self, pool: Pool) -> int:
        """The chips of a pool that are taken."""
        return self._used.get(pool, 0)

    def in_use(self) -> dict[str, int]:
        """The chips that are taken, by "zone/generation/reservation"."""
        return {"/".join(pool): chips for pool, chips in self._used.items() if chips}

    def reservation_use(self, reservation: str) -> int:
        """The chips of a reservation that are taken."""
        return sum(chips for pool, chips in self._used.items() if pool[2] == reservation)

    def set_limit(self, zone: str, generation: str, chips: float) -> None:
        """Change a pool's size. What is already granted stays."""
        self.limits[zone, generation] = chips
        self.pump()

    def check_reservation(self, admission: Admission) -> None:
        """Refuse a reservation that does not exist.

        Raises:
            ApiError: NOT_FOUND.
        """
        if admission.reservation and admission.reservation not in self.reservations:
            raise not_found(admission.reservation)

    def check_count(self, existing: int, zone: str) -> None:
        """Refuse one more queued resource where the quota is used up.

        Raises:
            ApiError: RESOURCE_EXHAUSTED.
        """
        if existing >= self.queued_resource_quota:
            limit = int(self.queued_resource_quota)
            raise quota_exceeded(
                f"zone:{zone}",
                "Quota limit 'QueuedResourcesPerProjectPerZoneForTPUAPI' has been exceeded. "
                f"Limit: {limit} in zone {zone}.",
            )

    def check_chips(self, admission: Admission, held: Iterable[Admission]) -> None:
        """Refuse chips beyond the quota of their kind.

        Raises:
            ApiError: RESOURCE_EXHAUSTED.
        """
        limit = self.quota.get((admission.generation, admission.kind), UNLIMITED)
        same = [a.chips for a in held if (a.generation, a.kind) == (admission.generation, admission.kind)]
        if sum(same) + admission.chips > limit:
            kind = {"spot": "Preemptible", "reserved": "Reserved"}.get(admission.kind, "")
            metric = f"TPU{admission.generation.upper()}{kind}PodPerProjectPerZoneForTPUAPI"
            raise quota_exceeded(
                f"zone:{admission.zone}",
                f"Quota limit '{metric}' has been exceeded. Limit: {int(limit)} in zone {admission.zone}.",
            )

    async def wait(self, admission: Admission, chips: int | None = None) -> None:
        """Stand in line until the chips are granted.

        Raises:
            ApiError: DEADLINE_EXCEEDED when the request's validity ends first.
        """
        place = Waiting(admission, admission.chips if chips is None else chips)
        self._queue.append(place)
        alarms: list[asyncio.Future[Any]] = [asyncio.ensure_future(place.granted.wait())]
        if admission.not_after != UNLIMITED:
            alarms.append(asyncio.ensure_future(self._clock.until(admission.not_after)))
        opening = asyncio.ensure_future(self._open(admission))
        try:
            await asyncio.wait(alarms, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if place.granted.is_set():
                self.release(admission, place.chips)
            raise
        finally:
            for alarm in (*alarms, opening):
                alarm.cancel()
            if place in self._queue:
                self._queue.remove(place)
                self.pump()
        if not place.granted.is_set():
            raise ApiError("DEADLINE_EXCEEDED", "The request's validity ended before capacity was available.")

    async def _open(self, admission: Admission) -> None:
        await self._clock.until(admission.not_before)
        self.pump()

    def try_take(self, admission: Admission, chips: int) -> bool:
        """Take chips at once, past the queue's end, if nobody waits for them and they are there."""
        if any(place.admission.pool == admission.pool and self._may_start(place) for place in self._queue):
            return False
        return self._take(admission.pool, chips)

    def _may_start(self, place: Waiting) -> bool:
        return place.admission.not_before <= self._clock.now()

    def _take(self, pool: Pool, chips: int) -> bool:
        if self.used(pool) + chips > self.limit(pool):
            return False
        self._used[pool] = self.used(pool) + chips
        return True

    def pump(self) -> None:
        """Grant what can be granted, in order."""
        blocked: set[Pool] = set()
        for place in list(self._queue):
            pool = place.admission.pool
            if pool in blocked or not self._may_start(place):
                continue
            if self._take(pool, place.chips):
                self._queue.remove(place)
                place.granted.set()
            else:
                blocked.add(pool)

    def release(self, admission: Admission, chips: int) -> None:
        """Give chips back and serve those who wait for them."""
        pool = admission.pool
        self._used[pool] = max(0, self.used(pool) - chips)
        self.pump()
