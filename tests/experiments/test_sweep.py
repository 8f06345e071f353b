"""Sweeps on eight CPU devices: rows, order, limits, stopping and going on."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import statistics
import threading
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest

from multislice_nb.errors import ExperimentError, InvalidRequestError, ParallelismError, WorkerLostError
from multislice_nb.experiments import MLP, Configuration, Results, SweepRequest, asweep, sweep
from multislice_nb.experiments.progress import seconds_left
from multislice_nb.sharding import Parallelism
from multislice_nb.tpu import AcceleratorType

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from multislice_nb.experiments import LocalCluster, SweepProgress
    from multislice_nb.experiments.gang import Gang
    from tests.experiments import on_devices
else:
    import on_devices  # pytest puts this folder on the path

SMALL: dict[str, Any] = {"embedding": 32, "layers": 1, "steps": 3}
STRATEGIES = ["fsdp", "tensor", "4-way FSDP + 2-way tensor"]


def quiet(_progress: SweepProgress) -> None:
    """Show nothing."""


def measured(
    cluster: Gang, path: Path | None, strategies: list[str], batch_sizes: list[Any], **more: Any
) -> Results:
    """A quick sweep."""
    return sweep(strategies, batch_sizes, cluster=cluster, path=path, **{**SMALL, "progress": quiet, **more})


def lines(path: Path) -> list[dict[str, Any]]:
    """The rows of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


class Failing:
    """The same workers, of which some calls of `measure` end in an error of our choice."""

    accelerator_type: AcceleratorType | None = None
    node_count, name = 1, "failing"

    def __init__(self, devices: LocalCluster, errors: Sequence[Exception | None]) -> None:
        self.devices, self.errors, self.restarts = devices, list(errors), 0

    async def acall(
        self, function: str, *args: Any, timeout: float | None = None, **kwargs: Any
    ) -> list[Any]:
        """Fail, or pass it on."""
        if function.endswith(":measure") and self.errors:
            error = self.errors.pop(0)
            if error:
                raise error
        return await self.devices.acall(function, *args, timeout=timeout, **kwargs)

    async def arestart(self) -> None:
        """Count it."""
        self.restarts += 1


class Slow(Failing):
    """The same workers, whose second measurement never ends by itself."""

    def __init__(self, devices: LocalCluster) -> None:
        super().__init__(devices, [])
        self.calls = 0

    async def acall(
        self, function: str, *args: Any, timeout: float | None = None, **kwargs: Any
    ) -> list[Any]:
        """Pass it on, but for the second measurement."""
        self.calls += function.endswith(":measure")
        if self.calls == 2:
            return await self.devices.acall("on_devices:sleep", 600)
        return await super().acall(function, *args, timeout=timeout, **kwargs)


class Slices(Failing):
    """The same workers as a v4-16, whose devices JAX calls by a name of our choice."""

    accelerator_type = AcceleratorType.parse("v4-16")

    def __init__(self, devices: LocalCluster, kind: str) -> None:
        super().__init__(devices, [])
        self.kind = kind

    async def acall(
        self, function: str, *args: Any, timeout: float | None = None, **kwargs: Any
    ) -> list[Any]:
        """Pass it on, and say the name."""
        found = await super().acall(function, *args, timeout=timeout, **kwargs)
        return [one | {"device_kind": self.kind} for one in found] if "survey" in function else found


def test_every_combination_is_one_row(devices: LocalCluster, tmp_path: Path) -> None:
    """Each strategy and batch size is measured once, and its row follows from its step times."""
    path = tmp_path / "new" / "rows.jsonl"
    results = measured(devices, path, STRATEGIES, [8, 16])
    rows = lines(path)
    assert results.rows == rows
    assert {(row["strategy"], row["batch_per_device"]) for row in rows} == {
        (strategy, batch) for strategy in STRATEGIES for batch in (8, 16)
    }
    for row in rows:
        assert row["status"] == "ok"
        assert len(row["step_seconds_all"]) == 3
        assert row["step_seconds"] == statistics.median(row["step_seconds_all"])
        assert row["step_seconds_q1"] <= row["step_seconds"] <= row["step_seconds_q3"]
        assert row["tflops_per_chip"] == pytest.approx(row["flops_per_device"] / row["step_seconds"] / 1e12)
        assert row["tflops_low"] <= row["tflops_per_chip"] <= row["tflops_high"]
        assert row["batch"] == 8 * row["batch_per_device"] == row["tokens_per_slice"]
        assert row["flops_per_device"] > row["flops_per_device_matmul"] < row["flops_per_device_6bp"]
        assert row["jax"]
        assert row["date"].endswith("+00:00")
    assert list(results.frame["strategy"]) == [row["strategy"] for row in rows]


def test_cheapest_of_every_strategy_comes_first(devices: LocalCluster, tmp_path: Path) -> None:
    """All strategies are tried at the smallest batch before any at a larger one."""
    results = measured(devices, tmp_path / "r", ["tensor", "fsdp"], [16, 8])
    assert [row["batch_per_device"] for row in results.rows] == [8, 8, 16, 16]


def test_two_names_of_one_strategy_are_measured_once(devices: LocalCluster, tmp_path: Path) -> None:
    """The same degrees under two names are one configuration."""
    results = measured(devices, tmp_path / "r", ["fsdp", "8-way FSDP"], [8])
    assert [row["strategy"] for row in results.rows] == ["fsdp"]


def test_out_of_memory_is_a_row_and_larger_batches_are_not_tried(
    devices: LocalCluster, tmp_path: Path
) -> None:
    """A batch over the limit is recorded, larger ones are skipped, and a limit that allows it has it tried again."""
    limit = 8 * 200_000
    batches = [8, 4_000, 8_000]
    results = measured(devices, tmp_path / "r", ["fsdp", "tensor"], batches, memory_limit=limit)
    ends = {(row["strategy"], row["batch_per_device"]): row for row in results.rows}
    for strategy in ("fsdp", "tensor"):
        assert ends[strategy, 8]["status"] == "ok"
        assert ends[strategy, 4_000]["status"] == "oom"
        assert ends[strategy, 4_000]["peak_bytes_per_device"] * 8 > limit
        assert ends[strategy, 8_000]["status"] == "skipped"
        assert "4000" in ends[strategy, 8_000]["message"]
    before = (tmp_path / "r").read_bytes()
    measured(devices, tmp_path / "r", ["fsdp"], batches, memory_limit=limit)
    assert (tmp_path / "r").read_bytes() == before
    enough = ends["fsdp", 4_000]["peak_bytes_per_device"] * 8
    again = measured(devices, tmp_path / "r", ["fsdp"], batches, memory_limit=enough)
    assert [row["status"] for row in again.rows[-2:]] == ["ok", "oom"]
    again = measured(devices, tmp_path / "r", ["fsdp"], batches, memory_limit=8 * 10**9)
    assert [row["status"] for row in again.rows if row["strategy"] == "fsdp"] == ["ok"] * 3


def test_same_call_again_measures_nothing(devices: LocalCluster, tmp_path: Path) -> None:
    """A finished sweep with the same path leaves its file as it is."""
    path = tmp_path / "r"
    measured(devices, path, ["fsdp"], [8, 16])
    before = path.read_bytes()
    seen: list[SweepProgress] = []
    measured(devices, path, ["fsdp"], [8, 16], progress=seen.append)
    assert path.read_bytes() == before
    assert [(one.done, one.total) for one in seen] == [(2, 2)]


def test_emulated_slices_say_nothing_of_real_ones(devices: LocalCluster, tmp_path: Path) -> None:
    """What emulated slices measured, or had no memory for, is measured on TPUs of the same type all the same."""
    path = tmp_path / "r"
    batches, limit = [8, 40_000], 8 * 1_000_000
    measured(Slices(devices, "cpu"), path, ["fsdp"], batches, memory_limit=limit)
    results = measured(Slices(devices, "TPU v4"), path, ["fsdp"], [8, 80_000], memory_limit=limit)
    told = [(row["device_kind"], row["batch_per_device"], row["status"]) for row in results.rows]
    assert told == [
        ("cpu", 8, "ok"),
        ("cpu", 40_000, "oom"),
        ("TPU v4", 8, "ok"),
        ("TPU v4", 80_000, "oom"),
    ]


async def test_closed_sweep_goes_on_where_it_was(devices: LocalCluster, tmp_path: Path) -> None:
    """After a sweep is stopped between two rows, none is lost and none is there twice."""
    path = tmp_path / "r"
    request = SweepRequest(strategies=["fsdp", "tensor"], batch_sizes=[8, 16], **SMALL)
    async with aclosing(asweep(request, cluster=devices, path=path)) as begun:
        async for progress in begun:
            if progress.done == 2:
                break
    assert len(lines(path)) == 2
    counts = [progress.done async for progress in asweep(request, cluster=devices, path=path)]
    assert counts == [2, 3, 4]
    keys = [row["key"] for row in lines(path)]
    assert len(keys) == len(set(keys)) == 4


def test_interrupt_while_measuring_keeps_the_rows(devices: LocalCluster, tmp_path: Path) -> None:
    """Ctrl-C in the middle of a measurement raises, keeps what is measured, and the workers stay usable."""
    path = tmp_path / "r"

    def interrupt_second(progress: SweepProgress) -> None:
        if progress.done == 1:
            threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT]).start()

    gang = Slow(devices)
    with pytest.raises(KeyboardInterrupt) as stop:
        measured(gang, path, ["fsdp"], [8, 16], progress=interrupt_second)
    assert "1 measurements are kept" in stop.value.__notes__[0]
    measured(devices, path, ["fsdp"], [8, 16])
    assert len(lines(path)) == 2


def test_lost_worker_is_a_row_and_is_tried_again(devices: LocalCluster, tmp_path: Path) -> None:
    """When a worker is lost the row says so, the workers are started again, and a later run fills the gap."""
    path = tmp_path / "r"
    gang = Failing(devices, [None, WorkerLostError("Rank 3 is gone.")])
    results = measured(gang, path, ["fsdp"], [8, 16, 32])
    assert [row["status"] for row in results.rows] == ["ok", "lost", "ok"]
    assert results.rows[1]["message"] == "Rank 3 is gone."
    assert gang.restarts == 1
    results = measured(gang, path, ["fsdp"], [8, 16, 32])
    assert [row["status"] for row in results.rows] == ["ok", "ok", "ok"]
    assert len(lines(path)) == 4


def test_a_loss_that_is_no_number_costs_no_row(devices: LocalCluster, tmp_path: Path) -> None:
    """A training that diverges is measured and kept like any other, without its loss and with a word on it."""
    results = measured(devices, tmp_path / "r", ["fsdp"], [8], workloads=[on_devices.Diverging(32, 1)])
    (row,) = lines(tmp_path / "r")
    assert [row] == results.rows
    assert (row["status"], row["loss"]) == ("ok", None)
    assert row["tflops_per_chip"] > 0
    assert "learning rate" in row["message"]


def test_a_loop_counts_as_often_as_it_runs(devices: LocalCluster, tmp_path: Path) -> None:
    """FLOPs of a model whose layers are the rounds of one scan are those of all rounds, passes backward included."""
    model = on_devices.Scanned(embedding=64, layers=6)
    (row,) = measured(devices, tmp_path / "r", ["fsdp"], [64], workloads=[model]).rows
    assert row["flops_per_device"] == pytest.approx(row["flops_per_device_6bp"], rel=0.1)


def test_failure_after_failure_stops_the_sweep(devices: LocalCluster, tmp_path: Path) -> None:
    """Three failures in a row end the sweep with the last one's message."""
    gang = Failing(devices, [WorkerLostError(f"Rank {rank} is gone.") for rank in range(9)])
    with pytest.raises(ExperimentError, match="Rank 2 is gone"):
        measured(gang, tmp_path / "r", ["fsdp"], [8, 16, 32, 64])
    assert len(lines(tmp_path / "r")) == 3


def test_impossible_requests_leave_no_file(devices: LocalCluster, tmp_path: Path) -> None:
    """A strategy that does not fit, or no batch size at all, is refused before anything is written."""
    path = tmp_path / "r"
    with pytest.raises(ParallelismError):
        measured(devices, path, ["3-way FSDP"], [8])
    for sizes in ([], [0], [2.5]):
        with pytest.raises(InvalidRequestError):
            measured(devices, path, ["fsdp"], sizes)
    assert not path.exists()


def test_a_file_that_cannot_be_written_is_refused_before_anything_runs(
    devices: LocalCluster, tmp_path: Path
) -> None:
    """A path that no row could be added to is refused while nothing has been measured, and is left as it is."""
    (tmp_path / "file").write_text("")
    gang = Failing(devices, [WorkerLostError("It was asked to measure.")])
    for path in (tmp_path, tmp_path / "file" / "rows.jsonl"):
        with pytest.raises(ExperimentError, match=r"cannot be (written|read)"):
            measured(gang, path, ["fsdp"], [8])
    assert len(gang.errors) == 1
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_rounds_repeat_until_the_spread_is_small(devices: LocalCluster, tmp_path: Path) -> None:
    """Steps are added round by round until they agree, or until there are enough of them."""
    fine = measured(devices, tmp_path / "a", ["fsdp"], [8], target_spread=9.0)
    assert fine.rows[0]["rounds"] == 1
    strict = {"target_spread": 1e-9, "max_steps": 10}
    never = measured(devices, tmp_path / "b", ["fsdp"], [8], **strict)
    assert never.rows[0]["rounds"] == 4
    assert len(never.rows[0]["step_seconds_all"]) == 12


def test_progress_names_what_runs_and_what_was_measured(devices: LocalCluster, tmp_path: Path) -> None:
    """Progress counts up to the total and reads as one line."""
    seen: list[SweepProgress] = []
    measured(devices, tmp_path / "r", ["fsdp"], [8, 16], progress=seen.append)
    assert [(one.done, one.total, one.current) for one in seen] == [
        (0, 2, "fsdp batch 8"),
        (1, 2, "fsdp batch 16"),
        (2, 2, None),
    ]
    assert seen[0].seconds_left is None
    assert seen[1].seconds_left is not None
    assert seen[1].seconds_left > 0
    assert "2 configurations · 1 done · fsdp batch 8: " in str(seen[1])
    assert "(median of 3, ±" in str(seen[1])
    assert str(seen[1]).endswith(" left")


def test_without_a_kernel_there_is_one_line_for_each_row(
    devices: LocalCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Outside a notebook each configuration prints one line."""
    measured(devices, tmp_path / "r", ["fsdp"], [8, 16], progress=None)
    printed = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in printed] == ["1/2 fsdp batch 8", "2/2 fsdp batch 16"]


def test_time_left_follows_the_work() -> None:
    """Time left is a constant and a share of the work, fitted to what was measured."""
    assert seconds_left([], [1.0]) is None
    assert seconds_left([(1.0, 3.0)], [1.0, 1.0]) == pytest.approx(6.0)
    assert seconds_left([(1.0, 3.0), (2.0, 5.0)], [10.0]) == pytest.approx(21.0)


def test_new_files_have_names_of_their_own(
    devices: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a path each sweep gets a new file in the folder sweeps."""
    monkeypatch.chdir(tmp_path)
    first, second = (measured(devices, None, ["fsdp"], [8]) for _ in range(2))
    assert first.path != second.path
    assert sorted(tmp_path.glob("sweeps/*.jsonl")) == sorted(tmp_path / one.path for one in (first, second))
    assert Results.load(first.path).rows == first.rows


async def test_cancelled_sweep_stops_its_measurement(devices: LocalCluster, tmp_path: Path) -> None:
    """Cancelling the task of a sweep ends it although a measurement is running."""
    request = SweepRequest(strategies=["fsdp"], batch_sizes=[8], embedding=32, layers=1, steps=10_000_000)
    started = asyncio.Event()

    async def run() -> None:
        async for _ in asweep(request, cluster=devices, path=tmp_path / "r"):
            started.set()

    task = asyncio.create_task(run())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not (tmp_path / "r").exists()


def test_next_configuration_is_compiled_ahead(devices: LocalCluster, tmp_path: Path) -> None:
    """With compilation ahead each configuration is compiled once, and the rows are the same as without."""
    unseen = {"embedding": 48, "steps": 2}
    [before] = devices.call("on_devices:programs_made")
    ahead = measured(devices, tmp_path / "a", ["fsdp", "tensor"], [8, 16], compile_ahead=True, **unseen)
    [after] = devices.call("on_devices:programs_made")
    assert after - before == 4
    plain = measured(devices, tmp_path / "b", ["fsdp", "tensor"], [8, 16], **unseen)
    assert devices.call("on_devices:programs_made") == [after]  # all four were still there
    for name in ("key", "status", "flops_per_device", "loss"):
        assert [row[name] for row in ahead.rows] == [row[name] for row in plain.rows]


def test_programs_are_shared_by_the_order_of_devices(devices: LocalCluster) -> None:
    """Two meshes of one shape whose devices are in another order share no program, though its text is the same."""
    over_dcn = (Parallelism(ici_fsdp=4, dcn_data=2), Parallelism(ici_data=2, ici_fsdp=2, dcn_fsdp=2))
    (first,), (second,) = (devices.call("on_devices:named_by_mesh", one) for one in over_dcn)
    assert first[:2] == second[:2]
    assert first[2] != second[2]
    assert devices.call("on_devices:named_by_mesh", over_dcn[0]) == [first]


def test_what_cannot_be_compiled_ahead_disturbs_nothing(devices: LocalCluster) -> None:
    """A configuration that does not compile fails in its own turn and not in the one before it."""
    point = Configuration(
        strategy="fsdp", parallelism=Parallelism(ici_fsdp=8), batch_per_device=8, workload=MLP(32, 1), steps=1
    )
    assert devices.call("on_devices:cannot_compile_ahead", point) == [True]
