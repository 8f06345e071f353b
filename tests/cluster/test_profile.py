"""`profile=` of a cell: traces from every worker into one run, also of a cell that fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from multislice_nb import errors
from multislice_nb._portal import sync

if TYPE_CHECKING:
    from pathlib import Path

    from multislice_nb.cluster import Cluster

STEP = """
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.sharding.Mesh(jax.devices(), ("x",))
ones = jax.jit(lambda: jnp.ones((64, 64)), out_shardings=NamedSharding(mesh, P("x")))()
summed = jax.jit(lambda x: jnp.sum(x @ x), out_shardings=NamedSharding(mesh, P()))(ones)
"""
HOSTS = [f"slice_00{slice_id}_worker_00{worker_id}" for slice_id in (0, 1) for worker_id in (0, 1)]


def left_there(cluster: Cluster) -> list[str]:
    """Traces that are on the workers."""
    ended = sync(cluster.reach.connections.run_all, "cd; find .multislice_nb -name '*.xplane.pb'")
    return [end.stdout.strip() for end in ended.values() if end.stdout.strip()]


def test_a_cell_is_traced_on_every_worker(cluster: Cluster, tmp_path: Path) -> None:
    """One run with a trace for each worker, in which each of its devices has computed and summed; nothing stays there."""
    result = cluster.run(STEP + "float(summed)", profile=tmp_path / "traces")
    assert result.values == [64.0**3] * 4
    profile = result.profile
    assert profile is not None
    assert profile.problems == ()
    assert [host.name for host in profile.hosts] == HOSTS
    run = tmp_path / "traces" / "plugins" / "profile" / profile.run
    assert {path.name for path in run.iterdir()} == {
        f"{host}{suffix}" for host in HOSTS for suffix in (".xplane.pb", ".trace.json.gz")
    }
    assert [path.name for path in (tmp_path / "traces").iterdir()] == ["plugins"]
    assert {len(host.devices) for host in profile.hosts} == {4}
    frame = profile.frame
    assert (frame["compute"] > 0).all()
    assert (frame["all-reduce"] > 0).all()
    assert left_there(cluster) == []


def test_a_failed_cells_trace_is_kept(cluster: Cluster, tmp_path: Path) -> None:
    """The trace is in the error's result, and the next cell can be traced again, into a run of its own."""
    with pytest.raises(errors.WorkerError, match="bad shard") as caught:
        cluster.run(STEP + "raise ValueError('bad shard')", profile=tmp_path)
    assert caught.value.result is not None
    failed = caught.value.result.profile
    assert failed is not None
    assert [host.name for host in failed.hosts] == HOSTS
    handle = cluster.submit(STEP, profile=tmp_path)
    again = handle.result().profile
    assert again is not None
    assert again.run != failed.run
    assert len(again.hosts) == 4


def test_two_traces_at_once_are_refused(cluster: Cluster, tmp_path: Path) -> None:
    """JAX takes one trace at a time: with one of the user's own, the cell says so before any of it has run."""
    cluster.run("import jax, tempfile\nown = tempfile.mkdtemp()\njax.profiler.start_trace(own)")
    try:
        with pytest.raises(errors.WorkerError, match="stop_trace"):
            cluster.run("ran = True", profile=tmp_path)
        assert cluster.run("'ran' in globals()").values == [False] * 4
    finally:
        cluster.run("jax.profiler.stop_trace()\nimport shutil; shutil.rmtree(own)")


def test_a_folder_that_cannot_be_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    """Nothing runs where the traces have no place."""
    (tmp_path / "file").touch()
    with pytest.raises(errors.InvalidRequestError, match="cannot hold a profile"):
        cluster.run("ran_without = True", profile=tmp_path / "file" / "traces")
    assert cluster.run("'ran_without' in globals()").values == [False] * 4
