"""Where a gang is to form."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from multislice_nb.cloud import SshSettings
    from multislice_nb.cluster.health import Health
    from multislice_nb.cluster.inventory import Worker
    from multislice_nb.tpu import AcceleratorType

__all__ = ["Site"]


@dataclass(frozen=True, slots=True)
class Site:
    """Where a gang is to form, and what must come out.

    Attributes:
        name: The queued resource's name.
        workers: All workers, in rank order.
        accelerator_type: What each slice is.
        node_count: Slices.
        tpu: Whether there are TPUs behind it, or CPU devices as on the emulator.
        ssh: How the workers are reached.
        known_hosts: Where their host keys are kept.
        host_keys: What the Cloud TPU API says of them, by rank.
        proxies: By rank, the command through which a worker is reached.
        grant: Has the workers know our SSH key.
        ask: Asks the Cloud TPU API what the slices are like.
    """

    name: str
    workers: tuple[Worker, ...]
    accelerator_type: AcceleratorType
    node_count: int
    tpu: bool
    ssh: SshSettings
    known_hosts: Path
    host_keys: Mapping[int, str]
    proxies: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    grant: Callable[[], Awaitable[str | None]] | None = None
    ask: Callable[[], Awaitable[Health]] | None = None

    def environment(self, rank: int, gang: str) -> dict[str, str]:
        """What every engine is told at every start, so that no value of an earlier gang survives."""
        worker = self.workers[rank]
        values = {"MULTISLICE_NB_RANK": str(rank), "MULTISLICE_NB_GANG": gang}
        if self.node_count > 1:
            values |= {
                "MEGASCALE_NUM_SLICES": str(self.node_count),
                "MEGASCALE_SLICE_ID": str(worker.slice_id),
                "MEGASCALE_COORDINATOR_ADDRESS": self.workers[0].address,
            }
        return values
