"""This machine in place of a cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from multislice_nb.errors import CellTimeoutError, InvalidRequestError, WorkerError, WorkerLostError
from multislice_nb.experiments import MLP, LocalCluster, memory, sweep

if TYPE_CHECKING:
    from pathlib import Path


def test_worker_lives_on_between_calls(devices: LocalCluster) -> None:
    """Two calls run in the same process, which is not this one, and sees the devices asked for."""
    first, second = devices.call("on_devices:process"), devices.call("on_devices:process")
    assert first == second
    [survey] = devices.call("multislice_nb.experiments.measure:survey")
    assert survey["devices"] == 8
    assert survey["platform"] == "cpu"
    assert survey["available_bytes"] > 0
    assert not survey["emulated"]


def test_exception_in_the_worker_is_the_cause() -> None:
    """What the function raised is the cause of the error, and the worker lives on."""
    with LocalCluster(1) as cluster:
        pid = cluster.call("on_devices:process")
        with pytest.raises(WorkerError, match="ValueError") as caught:
            cluster.call("on_devices:sleep", -1)
        assert isinstance(caught.value.__cause__, ValueError)
        assert cluster.call("on_devices:process") == pid


def test_what_was_typed_into_a_notebook_is_sent(devices: LocalCluster, tmp_path: Path) -> None:
    """A model whose class only this process has is measured like any other."""

    class Mine(MLP):
        """Of this function alone: nobody else can import it."""

    results = sweep(
        ["fsdp"], [8], workloads=[Mine(32, 1)], steps=2, cluster=devices, path=tmp_path / "r", progress=print
    )
    assert [row["status"] for row in results.rows] == ["ok"]


def test_lost_and_stuck_workers_are_replaced() -> None:
    """A worker that dies or runs past its deadline is named, and the next call has a new one; none is left."""
    with LocalCluster(1) as cluster:
        [first] = cluster.call("on_devices:process")
        with pytest.raises(WorkerLostError):
            cluster.call("on_devices:die")
        [second] = cluster.call("on_devices:process")
        os.kill(second, signal.SIGKILL)
        pool = cluster._pool
        assert pool is not None
        end = time.monotonic() + 60
        while not pool._broken:  # that nobody is there is known before it is asked
            assert time.monotonic() < end
            time.sleep(0.01)
        with pytest.raises(WorkerLostError):
            cluster.call("on_devices:process")
        [second] = cluster.call("on_devices:process")
        begun = time.monotonic()
        with pytest.raises(CellTimeoutError, match=r"0\.5 s"):
            cluster.call("on_devices:sleep", 600, timeout=0.5)
        assert time.monotonic() - begun < 60
        [third] = cluster.call("on_devices:process")
    assert len({first, second, third}) == 3
    assert not any(psutil.pid_exists(pid) for pid in (first, second, third))


def test_files_in_the_cache_take_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container, what the kernel keeps of files that were read is free for whoever asks."""
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    for name, text in (("max", "9000"), ("current", "8000"), ("stat", "anon 3000\ninactive_file 4000\n")):
        (tmp_path / f"memory.{name}").write_text(text)
    assert memory.available_bytes() == 9000 - 8000 + 4000
    (tmp_path / "memory.max").write_text("max")
    assert memory.available_bytes() > 5000


def test_no_devices_is_refused() -> None:
    """A cluster without devices is refused."""
    with pytest.raises(InvalidRequestError):
        LocalCluster(0)


def test_package_brings_nothing_heavy() -> None:
    """Importing the package alone imports no jax, pandas, scipy or matplotlib."""
    code = (
        "import multislice_nb.experiments, sys;"
        "print(sorted({'jax', 'numpy', 'pandas', 'scipy', 'matplotlib', 'IPython'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
