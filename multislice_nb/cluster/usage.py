"""How much of the workers is used: HBM and duty cycle of their TPUs, memory and processors."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from multislice_nb import errors
from multislice_nb._bounded import gather
from multislice_nb.cluster.errand import ErrandError, errand
from multislice_nb.cluster.fold import fold
from multislice_nb.cluster.transfer import size_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from multislice_nb.cluster.inventory import Worker
    from multislice_nb.cluster.ssh import Connections

__all__ = ["METRICS_PORT", "DeviceUsage", "UsageReport", "WorkerUsage", "look"]

METRICS_PORT = 8431
"""Where libtpu serves its metrics on a TPU VM, on loopback, in the process that holds the TPU."""

AT_ONCE = 64
"""Workers that are asked at a time, so that a thousand do not start a thousand processes at once here."""

DEADLINE = 15.0
"""Seconds for one worker."""


@dataclass(frozen=True, slots=True)
class DeviceUsage:
    """One TPU device, by libtpu's own metrics.

    Attributes:
        device: Its number on the worker.
        hbm_used: Bytes of HBM in use.
        hbm_total: Bytes of HBM.
        duty_cycle: Percent of the last sample period in which its chip's TensorCores worked; None if not told.
    """

    device: int
    hbm_used: int
    hbm_total: int
    duty_cycle: float | None


@dataclass(frozen=True, slots=True)
class WorkerUsage:
    """One worker at one moment.

    Attributes:
        rank: JAX's process id.
        devices: Its TPU devices; none where no process holds the TPU, and on the emulator.
        memory: Bytes of memory in use: of the VM, or of an emulated VM's processes.
        memory_total: Bytes of memory that the machine has.
        cpu_seconds: Processor time used so far, of the same.
        cpus: How many processors there are.
        at: Seconds on the worker's own clock, which starts anywhere.
        cpu_percent: Processor time since the look before, in percent of one processor; None at the first.
    """

    rank: int
    devices: tuple[DeviceUsage, ...]
    memory: int
    memory_total: int
    cpu_seconds: float
    cpus: int
    at: float
    cpu_percent: float | None = None

    @classmethod
    def of(cls, rank: int, told: Mapping[str, Any], before: WorkerUsage | None = None) -> WorkerUsage:
        """From what the worker's side says, and a look before it."""
        share = None
        if before is not None and told["at"] > before.at and told["cpu_seconds"] >= before.cpu_seconds:
            share = 100 * (told["cpu_seconds"] - before.cpu_seconds) / (told["at"] - before.at)
        return cls(
            rank=rank,
            devices=tuple(
                DeviceUsage(each["device"], each["used"], each["total"], each["duty"])
                for each in told["devices"]
            ),
            memory=told["memory"],
            memory_total=told["memory_total"],
            cpu_seconds=told["cpu_seconds"],
            cpus=told["cpus"],
            at=told["at"],
            cpu_percent=share,
        )

    @property
    def hbm_used(self) -> int:
        """Bytes of HBM in use on all its devices."""
        return sum(each.hbm_used for each in self.devices)

    @property
    def hbm_total(self) -> int:
        """Bytes of HBM on all its devices."""
        return sum(each.hbm_total for each in self.devices)

    @property
    def duty_cycle(self) -> float | None:
        """Percent, the mean of its devices; None where libtpu does not tell."""
        told = [each.duty_cycle for each in self.devices if each.duty_cycle is not None]
        return sum(told) / len(told) if told else None

    def __str__(self) -> str:
        parts = []
        if self.devices:
            parts.append(f"HBM {self.hbm_used / 2**30:.1f} of {self.hbm_total / 2**30:.1f} GiB")
        if self.duty_cycle is not None:
            parts.append(f"duty cycle {self.duty_cycle:.0f} %")
        parts.append(f"memory {size_text(self.memory)}")
        if self.cpu_percent is not None:
            parts.append(f"CPU {self.cpu_percent:.0f} %")
        return " · ".join(parts)


@dataclass(frozen=True)
class UsageReport:
    """All workers at one moment.

    Attributes:
        workers: By rank.
        silent: By rank, why a worker did not tell.
    """

    workers: Mapping[int, WorkerUsage]
    silent: Mapping[int, str] = field(default_factory=dict)

    @property
    def frame(self) -> pd.DataFrame:
        """A row per worker: bytes, percent."""
        import pandas as pd

        names = ("rank", "hbm_used", "hbm_total", "duty_cycle", "memory", "memory_total", "cpu_percent")
        return pd.DataFrame(
            [[getattr(each, name) for name in names] for each in self.workers.values()], columns=list(names)
        )

    def __str__(self) -> str:
        texts = {rank: str(each) for rank, each in self.workers.items()} | {
            rank: f"does not tell: {why}" for rank, why in self.silent.items()
        }
        total = len(texts)
        return "\n".join(f"[{who}] {text}" for who, text in fold(dict(sorted(texts.items())), total=total))

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


async def look(
    connections: Connections, workers: Sequence[Worker], before: UsageReport | None = None
) -> UsageReport:
    """Ask all workers once, some at a time; one that does not answer is in the report, not an error.

    Args:
        connections: Open connections.
        workers: Whom to ask.
        before: The report of the round before, for the share of the processors.
    """
    found: dict[int, WorkerUsage] = {}
    silent: dict[int, str] = {}

    async def one(worker: Worker) -> None:
        request = {"ports": [METRICS_PORT]}
        try:
            told = await errand(connections, worker, "usage:usage", request, deadline=DEADLINE)
        except (ErrandError, errors.MultisliceError) as error:
            silent[worker.rank] = str(error).splitlines()[0]
            return
        earlier = before.workers.get(worker.rank) if before is not None else None
        found[worker.rank] = WorkerUsage.of(worker.rank, told, earlier)

    await gather(one, workers, at_once=AT_ONCE)
    return UsageReport(dict(sorted(found.items())), silent)
