"""Two slices of four workers: what must hold for a gang that is more than a pair of pairs."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from multislice_nb import errors
from tests.gangs import attached

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from multislice_nb.cluster import Cluster
    from multislice_nb.cluster.progress import CellProgress

PSUM = """
import jax, jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

mesh = Mesh(jax.devices(), ("all",))
ones = jax.jit(lambda: jnp.ones(jax.device_count()), out_shardings=NamedSharding(mesh, P("all")))()
over_all = jax.jit(jax.shard_map(lambda a: jax.lax.psum(a, "all"), mesh=mesh, in_specs=P("all"), out_specs=P()))
"""


@pytest.fixture(scope="module")
def eight(emulator_home: Path) -> Iterator[Cluster]:
    """2 slices of v4-32: 8 workers, 32 devices."""
    with attached("eight", "v4-32") as gang:
        yield gang


@pytest.mark.timeout(180)
def test_a_killed_worker_is_named_at_once(eight: Cluster) -> None:
    """SIGKILL of one of 8 in a loop of psums ends the cell with its name; the rest are freed, one call restarts them."""
    pids = eight.run("import os\nos.getpid()").values
    killed: list[int] = []

    def kill(progress: CellProgress) -> None:
        if "step 3" in str(progress) and not killed:
            killed.append(pids[5])
            os.kill(pids[5], signal.SIGKILL)

    loop = "for step in range(1_000_000):\n    x = over_all(ones).block_until_ready()\n    if step < 5: print('step', step, flush=True)"
    with pytest.raises(errors.WorkerLostError) as caught:
        eight.run(PSUM + loop, on_update=kill)
    text = str(caught.value)
    assert text.startswith("WorkerLost on rank 5 (slice 1, worker 1)")
    assert "killed by SIGKILL" in text
    assert caught.value.result is not None
    assert [e.worker.rank for e in caught.value.result.errors if e and not e.secondary] == [5]
    with pytest.raises(errors.WorkerLostError, match="nothing was run"):
        eight.run("1")
    eight.restart()
    assert eight.run(PSUM + "over_all(ones)[0].item()").values == [32.0] * 8
