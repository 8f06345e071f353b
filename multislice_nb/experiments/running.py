"""One sweep on one gang of workers: what is left, how a configuration ends, when to start the workers again."""

from __future__ import annotations

import dataclasses
import json
import time
from typing import TYPE_CHECKING

from multislice_nb.errors import CellTimeoutError, ExperimentError, WorkerError, WorkerLostError
from multislice_nb.experiments.memory import is_out_of_memory
from multislice_nb.experiments.progress import SweepProgress, describe, on_slices, seconds_left
from multislice_nb.experiments.rows import Place, failed_row, key_of, row_of, slowest, spread

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from multislice_nb.experiments.configuration import Configuration
    from multislice_nb.experiments.gang import Gang
    from multislice_nb.experiments.measure import Measured, Survey
    from multislice_nb.experiments.request import SweepRequest
    from multislice_nb.experiments.results import Results, Row

_SURVEY = "multislice_nb.experiments.measure:survey"
_MEASURE = "multislice_nb.experiments.measure:measure"
_SURVEY_SECONDS = 120.0
_SHARE_OF_FREE_MEMORY = 0.75
_FAILURES_IN_A_ROW = 3
"""So many configurations that fail one after the other are a fault of the whole, not of each."""


@dataclasses.dataclass
class Run:
    """A sweep under way.

    Attributes:
        request: What was asked.
        gang: The workers.
        place: Their shape.
        survey: What they say of themselves.
        points: All configurations, in order.
        memory_limit: Bytes that all devices together may need; None for no limit.
    """

    request: SweepRequest
    gang: Gang
    place: Place
    survey: Survey
    points: Sequence[Configuration]
    memory_limit: int | None
    _spent: list[tuple[float, float]] = dataclasses.field(default_factory=list)
    _failures: int = 0

    @classmethod
    async def begin(cls, request: SweepRequest, gang: Gang) -> Run:
        """Ask the workers what they are, and check the request against it.

        Raises:
            ParallelismError: A strategy does not fit the slices or the workload.
            InvalidRequestError: A name, size or number cannot be.
            ClusterError: The workers do not answer.
        """
        surveys: list[Survey] = await gang.acall(_SURVEY, timeout=_SURVEY_SECONDS)
        place = place_of(gang, surveys[0])
        free = [one["available_bytes"] for one in surveys if one["available_bytes"] is not None]
        limit = int(_SHARE_OF_FREE_MEMORY * min(free)) if free else None
        return cls(
            request=request,
            gang=gang,
            place=place,
            survey=surveys[0],
            points=request.configurations(place),
            memory_limit=request.memory_limit or limit,
        )

    async def progress(self, results: Results) -> AsyncGenerator[SweepProgress, None]:
        """Measure what is not in the file yet, and say how far it is before the first and after each.

        Raises:
            ExperimentError: The file cannot be written, or one configuration after another fails.
            ClusterError: The workers could not be started again.
        """
        left = [point for point in self.points if not self._ended(point, results)]
        last = None
        while left:
            yield self._progress(results, left, last)
            point = left.pop(0)
            begun = time.monotonic()
            last = self._skipped(point, results) or await self._row(point, left[0] if left else None)
            results.append(last)
            if last["status"] == "ok":
                self._spent.append((_work(point), time.monotonic() - begun))
            await self._recover(last)
        yield self._progress(results, left, last)

    def _progress(self, results: Results, left: list[Configuration], last: Row | None) -> SweepProgress:
        return SweepProgress(
            done=len(self.points) - len(left),
            total=len(self.points),
            current=f"{left[0]}{on_slices(left[0].slices, self.place.slices)}" if left else None,
            last=last,
            seconds_left=seconds_left(self._spent, [_work(point) for point in left]) if left else 0.0,
            results=results,
        )

    def _at(self, point: Configuration) -> Place:
        """The slices that a configuration runs on."""
        return self.place.first(point.slices)

    async def _row(self, point: Configuration, following: Configuration | None) -> Row:
        """Measure a configuration. A failure of the workers is a row too."""
        wanted = self.request.compile_ahead
        ahead = following if wanted or (wanted is None and self.survey["platform"] == "tpu") else None
        try:
            return row_of(point, self._at(point), self.survey, await self._rounds(point, ahead))
        except (WorkerError, WorkerLostError, CellTimeoutError) as error:
            return failed_row(point, self._at(point), self.survey, _status(error), error.what)

    async def _rounds(self, point: Configuration, ahead: Configuration | None) -> list[list[Measured]]:
        rounds: list[list[Measured]] = []
        while True:
            measured: list[Measured] = await self.gang.acall(
                _MEASURE,
                point,
                memory_limit=self.memory_limit,
                ahead=ahead,
                timeout=self.request.timeout,
            )
            rounds.append([one for one in measured if one["status"] != "idle"])
            ahead = None
            if rounds[-1][0]["status"] != "ok" or self._precise(rounds):
                return rounds

    def _precise(self, rounds: list[list[Measured]]) -> bool:
        """Whether more steps are not wanted."""
        target = self.request.target_spread
        seconds = slowest(rounds)
        return target is None or len(seconds) >= self.request.max_steps or spread(seconds) <= target

    def _ended(self, point: Configuration, results: Results) -> bool:
        """Whether a configuration need not be tried again."""
        key = key_of(point, self._at(point))
        row = results.row(key)
        if row is None or not results.ended(key):
            return False
        if row["status"] == "skipped":
            return self._skipped(point, results) is not None
        return row["status"] == "ok" or self._is_too_large(row)

    def _is_too_large(self, row: Row) -> bool:
        """Whether what ran out of memory would again. What only a limit of then refused may be allowed by now."""
        need = row.get("peak_bytes_per_device", 0) * row["devices"]
        return not need or (self.memory_limit is not None and need > self.memory_limit)

    def _skipped(self, point: Configuration, results: Results) -> Row | None:
        """A row for a configuration that is not tried, since a smaller batch of the same ran out of memory."""
        if not self.request.adaptive:
            return None
        mine = _apart_from_batch(key_of(point, self._at(point)))
        smaller = [
            row["batch_per_device"]
            for row in results.rows
            if row["status"] == "oom"
            and self._is_too_large(row)
            and row["batch_per_device"] < point.batch_per_device
            and _apart_from_batch(row["key"]) == mine
        ]
        if not smaller:
            return None
        message = f"Not tried: a batch of {min(smaller)} per device ran out of memory."
        return failed_row(point, self._at(point), self.survey, "skipped", message)

    async def _recover(self, row: Row) -> None:
        """After workers were lost, start them again; after failures in a row, stop."""
        if row["status"] in {"ok", "oom", "skipped"}:
            self._failures = 0
            return
        self._failures += 1
        if self._failures == _FAILURES_IN_A_ROW:
            raise ExperimentError(
                f"{_FAILURES_IN_A_ROW} configurations in a row failed; the last was {describe(row)}: {row['message']}",
                fix="Mend what the message says and run the sweep again with the same path: failures are tried again.",
            )
        if row["status"] in {"lost", "timeout"}:
            await self.gang.arestart()


def place_of(gang: Gang, survey: Survey) -> Place:
    """The shape of the gang. Without TPU slices, each JAX device counts as a chip."""
    kind = gang.accelerator_type
    return Place(
        cluster=gang.name,
        accelerator_type=kind.name if kind else survey["device_kind"],
        generation=kind.generation.name if kind else survey["platform"],
        device_kind=survey["device_kind"],
        slices=gang.node_count,
        chips=kind.chips * gang.node_count if kind else survey["devices"],
        devices=survey["devices"],
        slices_attached=gang.node_count,
    )


def _status(error: WorkerError | WorkerLostError | CellTimeoutError) -> str:
    if isinstance(error, WorkerLostError):
        return "lost"
    if isinstance(error, CellTimeoutError):
        return "timeout"
    return "oom" if is_out_of_memory(str(error)) else "failed"


def _work(point: Configuration) -> float:
    return point.workload.matmul_flops(point.batch_per_device) * (point.steps + point.warmup)


def _apart_from_batch(key: str) -> str:
    return json.dumps({**json.loads(key), "batch_per_device": None}, sort_keys=True)
