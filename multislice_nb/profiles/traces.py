"""What a trace of jax.profiler says of the devices of one worker.

An XSpace file (`HOST.xplane.pb`) holds planes of lines of events. A TPU has a plane of its own, where the line of
XLA operations shows what runs and another one what goes on beside it. CPU devices share the plane of the host, on
whose threads each operation says which device it is for.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from multislice_nb.errors import InvalidRequestError
from multislice_nb.profiles.operations import computes, kind_of, total

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from multislice_nb.profiles.operations import Interval

__all__ = ["DeviceTime", "device_times"]

# Names of planes and lines are those of xprof's xplane_schema.
_ACCELERATOR = re.compile(r"/device:(TPU|GPU):\d+")
_HOST = "/host:CPU"
_OPERATIONS, _BESIDE = "XLA Ops", "Async XLA Ops"
_NANOSECONDS = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTime:
    """Where the time of one device went, in seconds; time in which two operations ran counts once.

    Attributes:
        device: Its name in the trace, as in `TPU:0`.
        span: From the begin of its first operation to the end of its last.
        compute: With at least one operation that computes: no collective, no copy that is begun or waited for.
        collective: With at least one collective, waiting for other devices included.
        exposed: With collectives and nothing else: what they add to the step.
        kinds: With each kind of collective, as in `all-reduce`.
    """

    device: str
    span: float
    compute: float
    collective: float
    exposed: float
    kinds: Mapping[str, float]

    @property
    def idle(self) -> float:
        """Without computing and collectives: the host is late, or a copy is waited for."""
        return max(0.0, self.span - self.compute - self.exposed)


def device_times(path: Path) -> tuple[DeviceTime, ...]:
    """The times of all devices in an XSpace file, by name; none where no device ran anything.

    Raises:
        InvalidRequestError: The file is no trace.
    """
    import jax

    try:
        planes = list(jax.profiler.ProfileData.from_file(str(path)).planes)
    except Exception as error:  # the reader raises whatever its parser does
        raise InvalidRequestError(
            f"{path} cannot be read as a trace: {error}",
            fix="Give a HOST.xplane.pb that jax.profiler has written.",
        ) from error
    accelerators = [plane for plane in planes if _ACCELERATOR.fullmatch(plane.name)]
    operations = [operation for plane in accelerators for operation in _of_accelerator(plane)]
    if not operations:  # only then, for each event of the host has to be asked
        operations = [one for plane in planes if plane.name == _HOST for one in _of_threads(plane, "CPU:")]
    by_device: dict[str, list[_Operation]] = defaultdict(list)
    for operation in operations:
        by_device[operation.device].append(operation)
    return tuple(_times(device, by_device[device]) for device in sorted(by_device))


class _Operation(NamedTuple):
    """One that ran: on which device, the kind of collective or None, and when, in nanoseconds."""

    device: str
    kind: str | None
    interval: Interval


def _of_accelerator(plane: Any) -> Iterator[_Operation]:
    device = plane.name.removeprefix("/device:")
    lines = {line.name: line for line in plane.lines}
    if _OPERATIONS not in lines:  # a GPU: operations stand on the lines of its streams
        yield from _of_threads(plane, device)
        return
    for name in {_OPERATIONS, _BESIDE} & set(lines):
        for event in lines[name].events:
            kind = kind_of(event.name)
            if kind is not None or (name == _OPERATIONS and computes(event.name)):
                yield _Operation(device, kind, _interval(event))


def _of_threads(plane: Any, device: str) -> Iterator[_Operation]:
    for line in plane.lines:
        for event in line.events:
            stats = dict(event.stats)
            name = stats.get("hlo_op")
            if name is None:
                continue
            kind = kind_of(str(name))
            if kind is not None or computes(str(name)):
                which = f"{device}{stats.get('device_ordinal', 0)}" if device.endswith(":") else device
                yield _Operation(which, kind, _interval(event))


def _interval(event: Any) -> Interval:
    return event.start_ns, event.start_ns + event.duration_ns


def _times(device: str, operations: Sequence[_Operation]) -> DeviceTime:
    of_kind: dict[str | None, list[Interval]] = defaultdict(list)
    for operation in operations:
        of_kind[operation.kind].append(operation.interval)
    everything = [operation.interval for operation in operations]
    compute = total(of_kind.pop(None, []))
    return DeviceTime(
        device=device,
        span=(max(end for _, end in everything) - min(begin for begin, _ in everything)) / _NANOSECONDS,
        compute=compute / _NANOSECONDS,
        collective=total(one for intervals in of_kind.values() for one in intervals) / _NANOSECONDS,
        exposed=(total(everything) - compute) / _NANOSECONDS,
        kinds={str(kind): total(intervals) / _NANOSECONDS for kind, intervals in of_kind.items()},
    )
