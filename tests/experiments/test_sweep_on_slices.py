"""Sweeps on real workers: two slices on the emulator, a process each, joined by jax.distributed."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import psutil
import pytest

import multislice_nb as ms
from multislice_nb.cluster import GangSettings
from multislice_nb.errors import WorkerError
from multislice_nb.experiments import MLP, Configuration
from multislice_nb.sharding import Parallelism
from tests.gangs import attached

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from multislice_nb.cluster import Cluster
    from multislice_nb.experiments import LocalCluster, SweepProgress

SMALL: dict[str, Any] = {"embedding": 64, "layers": 2, "steps": 3}
STRATEGIES = ["fsdp", "2-way FSDP + 2-way tensor"]
pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def slices(emulator_home: Path) -> Iterator[Cluster]:
    """2 slices of v4-8: 2 workers, 8 devices, with short graces."""
    with attached("sweeps", "v4-8") as cluster:
        cluster.settings = GangSettings(grace=1.0, interrupt_grace=2.0)
        yield cluster


class Delayed:
    """The workers, whose second measurement takes so long that something can happen in it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.calls = cluster, 0
        self.name, self.node_count = cluster.name, cluster.node_count
        self.accelerator_type = cluster.accelerator_type

    async def acall(
        self, function: str, *args: Any, timeout: float | None = None, **kwargs: Any
    ) -> list[Any]:
        """Pass it on; the second measurement with a great many steps."""
        if function.endswith(":measure"):
            self.calls += 1
            if self.calls == 2:
                args = (dataclasses.replace(args[0], steps=10_000_000), *args[1:])
        return await self.cluster.acall(function, *args, timeout=timeout, **kwargs)

    async def arestart(self) -> None:
        """Pass it on."""
        await self.cluster.arestart()


def quiet(_progress: SweepProgress) -> None:
    """Show nothing."""


def while_second_runs(act: Callable[[], None]) -> Callable[[SweepProgress], None]:
    """Do something a while after the second measurement has begun."""

    def look(progress: SweepProgress) -> None:
        if progress.done == 1:
            threading.Timer(2.0, act).start()

    return look


def lines(path: Path) -> list[dict[str, Any]]:
    """The rows of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_rows_of_several_processes(slices: Cluster, devices: LocalCluster, tmp_path: Path) -> None:
    """A sweep on two slices has the losses of one process with as many devices, and knows where it ran."""
    results = ms.sweep(STRATEGIES, [8, 16], cluster=slices, path=tmp_path / "r", progress=quiet, **SMALL)
    for row in results.rows:
        assert (row["status"], row["processes"], row["slices"], row["devices"]) == ("ok", 2, 2, 8)
        assert (row["accelerator_type"], row["generation"], row["emulated"]) == ("v4-8", "v4", True)
        assert row["dcn_data"] == 2
        tokens = 4 * row["batch_per_device"]
        assert row["operational_intensity"] == ms.sharding.operational_intensity(tokens, slices=2)
    alone = ms.sweep(
        ["4-way FSDP + 2-way data", "2-way FSDP + 2-way tensor + 2-way data"],
        [8, 16],
        cluster=devices,
        path=tmp_path / "alone",
        progress=quiet,
        **SMALL,
    )
    ours, theirs = ([row["loss"] for row in one.rows] for one in (results, alone))
    assert ours == pytest.approx(theirs, rel=1e-2)  # bf16


def test_slices_are_a_dimension(slices: Cluster, devices: LocalCluster, tmp_path: Path) -> None:
    """The first slice alone, then both, in one file: each row says how many took part, and weak scaling is drawn."""
    results = ms.sweep(
        ["fsdp"], [8, 16], slices=[1, 2], cluster=slices, path=tmp_path / "r", progress=quiet, **SMALL
    )
    frame = results.frame
    assert list(frame["status"]) == ["ok"] * 4
    assert {
        (row.slices, row.devices, row.chips, row.slices_attached, row.batch) for row in frame.itertuples()
    } == {(n, 4 * n, 4 * n, 2, 4 * n * batch) for n in (1, 2) for batch in (8, 16)}
    assert list(frame["operational_intensity"].isna()) == [True, False] * 2
    scaling = results.plot_scaling().table
    assert list(scaling["slices"]) == [1, 2]
    alone = ms.sweep(
        ["4-way FSDP + 2-way data"], [4], cluster=devices, path=tmp_path / "alone", progress=quiet, **SMALL
    )
    assert frame["loss"][0] == pytest.approx(alone.rows[0]["loss"], rel=1e-2)  # 32 rows on 4 devices or 8


def test_a_worker_that_dies_costs_its_row_alone(slices: Cluster, tmp_path: Path) -> None:
    """When a worker is killed in the middle, its row says so and the rest is measured by a new gang."""
    path = tmp_path / "r"
    victim = psutil.Process(slices.run("import os; os.getpid()").values[1])
    gang = Delayed(slices)
    kill = while_second_runs(victim.kill)
    results = ms.sweep(["fsdp"], [8, 16, 32], cluster=gang, path=path, progress=kill, **SMALL)
    assert [row["status"] for row in results.rows] == ["ok", "lost", "ok"]
    assert "1" in results.rows[1]["message"]
    again = ms.sweep(["fsdp"], [8, 16, 32], cluster=slices, path=path, progress=quiet, **SMALL)
    assert [row["status"] for row in again.rows] == ["ok", "ok", "ok"]
    assert len(lines(path)) == 4


def test_interrupted_sweep_goes_on(slices: Cluster, tmp_path: Path) -> None:
    """Ctrl-C in the middle of a measurement frees the workers; the same call then adds what is missing, once."""
    path = tmp_path / "r"
    interrupt = while_second_runs(lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        ms.sweep(["fsdp"], [8, 16, 32], cluster=Delayed(slices), path=path, progress=interrupt, **SMALL)
    assert [row["batch_per_device"] for row in lines(path)] == [8]
    ms.sweep(["fsdp"], [8, 16, 32], cluster=slices, path=path, progress=quiet, **SMALL)
    assert [row["batch_per_device"] for row in lines(path)] == [8, 16, 32]
    assert {row["status"] for row in lines(path)} == {"ok"}


COUNTED = """
import os, signal, jax
from multislice_nb.experiments import programs
compiling, compiles = jax.stages.Lowered.compile, []
def counted(lowered, *args, **kwargs):
    compiles.append(lowered)
    return compiling(lowered, *args, **kwargs)
jax.stages.Lowered.compile = counted
"""

EACH_ON_ITS_OWN = """
jax.stages.Lowered.compile = compiling
for kept in (programs._lowered, programs._state_maker, programs._compiled):
    kept.cache_clear()
emulated = os.environ.pop("MULTISLICE_NB_EMULATED_VM")
"""

BROKEN = """
import dataclasses
from multislice_nb.experiments import MLP, Configuration
from multislice_nb.experiments.measure import measure
from multislice_nb.sharding import Parallelism

@dataclasses.dataclass(frozen=True)
class Broken(MLP):
    def loss(self, params, batch, constrain, *, remat=False):
        (out,) = jax.ffi.ffi_call("no_such_target", [jax.ShapeDtypeStruct((), "float32")])()
        return out + 0 * jax.numpy.sum(params[0][0]).astype("float32")

measure(Configuration(
    strategy="fsdp", parallelism=Parallelism(ici_fsdp=4, dcn_data=2), batch_per_device=8, workload=Broken(64, 1)
))
"""

DYING = """
import os, signal, jax
if jax.process_index() == 0:
    jax.stages.Lowered.compile = lambda lowered: os.kill(os.getpid(), signal.SIGKILL)
"""


def point(embedding: int) -> Configuration:
    """Something to measure that no test before has compiled."""
    return Configuration(
        strategy="fsdp",
        parallelism=Parallelism(ici_fsdp=4, dcn_data=2),
        batch_per_device=8,
        workload=MLP(embedding, 1),
        steps=2,
    )


def test_emulated_workers_compile_a_program_once(slices: Cluster) -> None:
    """The first worker compiles and the other loads, and what they measure is what each would have on its own."""
    slices.run(COUNTED)
    shared = slices.call("multislice_nb.experiments.measure:measure", point(96))
    assert slices.run("len(compiles)").values == [3, 0]
    slices.run(EACH_ON_ITS_OWN)
    try:
        alone = slices.call("multislice_nb.experiments.measure:measure", point(96))
    finally:
        slices.run("os.environ['MULTISLICE_NB_EMULATED_VM'] = emulated")
    for ours, theirs in zip(shared, alone, strict=True):
        for name in ("status", "loss", "flops", "argument_bytes", "peak_bytes", "devices"):
            assert ours[name] == theirs[name]


def test_what_does_not_compile_fails_on_all_workers_alike(slices: Cluster) -> None:
    """When the first worker cannot compile a program, no other waits for it: all say why, and go on."""
    with pytest.raises(WorkerError, match="no_such_target") as caught:
        slices.run(f"import jax\n{BROKEN}", timeout=60)
    assert "2 failures" in caught.value.what
    assert [one["status"] for one in slices.call("multislice_nb.experiments.measure:measure", point(80))] == [
        "ok"
    ] * 2


def test_a_worker_that_dies_while_it_compiles_for_all_is_a_row(slices: Cluster, tmp_path: Path) -> None:
    """The others, which wait for what it compiles, are freed at once, and a new gang measures the rest."""
    slices.run(DYING)
    results = ms.sweep(
        ["fsdp"], [8, 16], cluster=slices, path=tmp_path / "r", progress=quiet, timeout=60, **SMALL
    )
    assert [row["status"] for row in results.rows] == ["lost", "ok"]
