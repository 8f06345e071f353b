"""Cells on real workers: SSH to the emulator, ipyparallel engines, JAX on CPU."""

from __future__ import annotations

import asyncio
import resource
import sqlite3
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

import multislice_nb as ms
from multislice_nb import errors
from multislice_nb._portal import sync
from multislice_nb.cluster import Cluster, registry
from multislice_nb.cluster.cluster import SubsetWarning
from multislice_nb.cluster.formation import Formation
from multislice_nb.cluster.journal import DiskWarning
from tests.gangs import interrupt_once_printed
from tests.processes import gone

if TYPE_CHECKING:
    from multislice_nb.cluster import CellHandle, CellResult
    from multislice_nb.cluster.progress import CellProgress

BARRIER = "from jax.experimental import multihost_utils; multihost_utils.sync_global_devices('b')"


def test_every_worker_sees_every_device(cluster: Cluster) -> None:
    """16 devices on each of 4 workers, shown once."""
    result = cluster.run("import jax\njax.device_count()")
    assert result.values == [16, 16, 16, 16]
    assert str(result) == "[all 4] 16"


def test_ranks_follow_slices_and_workers(cluster: Cluster) -> None:
    """A worker's rank is JAX's process id, and its slice is the devices' slice."""
    result = cluster.run("import jax\n(jax.process_index(), jax.local_devices()[0].slice_index)")
    assert result.values == [(0, 0), (1, 0), (2, 1), (3, 1)]
    assert [(w.slice_id, w.worker_id) for w in cluster.workers] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_variables_stay(cluster: Cluster) -> None:
    """What one cell sets, the next one finds, each worker its own."""
    cluster.run("import jax\nx = 10 * jax.process_index()")
    assert cluster.run("x").values == [0, 10, 20, 30]


def test_cells_begin_where_pushed_files_are(cluster: Cluster, tmp_path: Path) -> None:
    """A folder that was pushed can be imported and its files opened by name."""
    (tmp_path / "lesson.py").write_text("VALUE = 42\n")
    cluster.files.push(tmp_path / "lesson.py")
    assert cluster.run("import lesson; (lesson.VALUE, open('lesson.py').read())").values == [
        (42, "VALUE = 42\n")
    ] * len(cluster.workers)


def test_a_users_own_hybrid_mesh(cluster: Cluster) -> None:
    """create_hybrid_device_mesh puts slices on the DCN axis, and a psum over each axis is right."""
    result = cluster.run("""
import jax, jax.numpy as jnp
from functools import partial
from jax.experimental import mesh_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

grid = mesh_utils.create_hybrid_device_mesh((1, 8), (2, 1))
mesh = Mesh(grid, ("dcn", "ici"))
pure = all(len({device.slice_index for device in row}) == 1 for row in grid)
ones = jax.jit(lambda: jnp.arange(16.0).reshape(2, 8), out_shardings=NamedSharding(mesh, P("dcn", "ici")))()
sums = jax.jit(
    jax.shard_map(lambda a: (jax.lax.psum(a, "dcn"), jax.lax.psum(a, "ici")), mesh=mesh,
                  in_specs=P("dcn", "ici"), out_specs=(P(None, "ici"), P("dcn", None))),
    out_shardings=(NamedSharding(mesh, P()), NamedSharding(mesh, P())))(ones)
(pure, sums[0].tolist(), sums[1].tolist())
""")
    over_dcn = [[float(i + i + 8) for i in range(8)]]
    over_ici = [[float(sum(range(8)))], [float(sum(range(8, 16)))]]
    assert result.values == [(True, over_dcn, over_ici)] * 4


def test_output_streams_while_the_cell_runs(cluster: Cluster) -> None:
    """What a cell prints is seen before it ends, and is whole in the result."""
    seen: list[CellProgress] = []
    result = cluster.run(
        "import time\nprint('early', flush=True)\ntime.sleep(1)\nprint('late')", on_update=seen.append
    )
    early = [progress for progress in seen if progress.running and "early" in str(progress)]
    assert early
    assert "late" not in str(early[0])
    assert result.stdout == ["early\nlate\n"] * 4


def test_engines_may_open_many_files(cluster: Cluster) -> None:
    """Collectives take a socket for every other worker, so engines raise their limit as far as they may."""
    code = "import resource; resource.getrlimit(resource.RLIMIT_NOFILE)"
    for soft, hard in cluster.run(code).values:
        assert soft == resource.RLIM_INFINITY or soft >= min(hard, 65536)


def test_busy_workers_tell_what_they_use(cluster: Cluster) -> None:
    """While a cell keeps the engines busy, all workers tell their memory and processor time, and their last line is at hand."""
    everybody = frozenset(range(len(cluster.workers)))
    handle = cluster.submit("import time\nprint('step 7', flush=True)\nwhile True: time.sleep(0.05)")
    try:
        limit = time.monotonic() + 30
        while not all(cluster.journal.last.get(rank, (0, ""))[1] == "step 7" for rank in everybody):
            assert time.monotonic() < limit
            time.sleep(0.05)
        assert cluster.running == (everybody, everybody)
        report = cluster.environment.usage()
        assert set(report.workers) == everybody
        assert all(use.memory > 50e6 and not use.devices for use in report.workers.values())
        later = cluster.environment.usage()
        assert all(use.cpu_percent is not None for use in later.workers.values())
        assert list(later.frame["rank"]) == sorted(everybody)
    finally:
        cluster.interrupt()
        handle.result(30, check=False)
    assert cluster.running == (frozenset(), frozenset())


def test_streams_displays_and_values_are_apart(cluster: Cluster) -> None:
    """Standard output, standard error, rich display and the value each have their place."""
    result = cluster.run("""
import sys
from IPython.display import HTML, display
print("out"); print("err", file=sys.stderr); display(HTML("<b>rich</b>"))
6 * 7
""")
    assert (result.stdout[0], result.stderr[0], result.values[0]) == ("out\n", "err\n", 42)
    assert result.displays[3][0]["text/html"] == "<b>rich</b>"


def test_html_of_a_result_is_escaped(cluster: Cluster) -> None:
    """What a worker prints cannot become markup in the notebook."""
    html = cluster.run("print('<script>alert(1)</script>')")._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html


def test_nothing_is_lost_of_much_output(cluster: Cluster) -> None:
    """Every line is in the result and on disk, while the screen gets a bounded number of them."""
    count, most = 20_000, 0

    def look(progress: CellProgress) -> None:
        nonlocal most
        most = max(most, len(str(progress)))

    result = cluster.run(f"for i in range({count}): print('line', i)", on_update=look)
    expected = "".join(f"line {i}\n" for i in range(count))
    assert result.stdout == [expected] * 4
    assert all(expected in cluster.journal.path(rank).read_text() for rank in range(4))
    assert most < 20_000
    assert len(str(result)) < 20_000


def test_a_full_disk_here_costs_notes_alone(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the notebook's machine cannot keep beside a cell is told, and the cell and its result are whole."""
    log = cluster.journal.path(1)
    cluster.journal.close()
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    log.symlink_to("/dev/full")
    try:
        with monkeypatch.context() as patch:
            ledger = cluster.queued_resource.cloud.ledger
            unwritable = sqlite3.connect(f"file:{ledger._path}?mode=ro", uri=True, check_same_thread=False)
            patch.setattr(ledger, "_open", unwritable)
            patch.setattr(cluster, "_touched", float("-inf"))
            with pytest.warns(DiskWarning) as told:
                result = cluster.run("print('text')\n7")
            unwritable.close()
    finally:
        log.unlink()
    idle, printed = (str(each.message) for each in told)
    assert "idle limit does not see that gang is in use" in idle
    assert "No space left on device" in printed
    assert (result.stdout, result.values) == (["text\n"] * 4, [7] * 4)
    cluster.run("print('more')")
    assert log.read_text().endswith("more\n")


def test_first_failure_is_shown_first(cluster: Cluster) -> None:
    """A raise on one worker becomes one exception that names it and its line; state is kept everywhere."""
    cluster.run("import jax\nkept = jax.process_index()")
    with pytest.raises(errors.WorkerError) as caught:
        cluster.run("if kept == 2:\n    raise ValueError('bad shard')\nkept")
    text = str(caught.value)
    assert text.startswith("ValueError on rank 2 (slice 1, worker 0): bad shard")
    assert "line 2" in text
    assert caught.value.result is not None
    assert caught.value.result.values == [0, 1, None, 3]
    assert cluster.run("kept").values == [0, 1, 2, 3]


def test_equal_failures_are_folded(cluster: Cluster) -> None:
    """The same error on all workers is told once, with the ranks of the others."""
    with pytest.raises(errors.WorkerError) as caught:
        cluster.run("1 / 0")
    assert str(caught.value).count("Traceback") == 1
    assert "first of 4 failures" in str(caught.value)


def test_check_false_returns_the_failure(cluster: Cluster) -> None:
    """Who wants to look at a failure without an exception can."""
    result = cluster.run("1 / 0", check=False)
    assert not result.ok
    assert [error.ename for error in result.errors if error] == ["ZeroDivisionError"] * 4


def test_a_subset_of_ranks(cluster: Cluster) -> None:
    """Only those asked run, which warns once; a target that does not exist is refused before anything runs."""
    cluster.run("import jax\nme = jax.process_index()")
    with pytest.warns(SubsetWarning, match="ranks 1, 3 of 4"):
        assert cluster.run("me", ranks=[1, 3]).values == [1, 3]
    assert cluster.run("me", slices="1").values == [2, 3]
    assert cluster.run("me", workers=0).values == [0, 2]
    with pytest.raises(errors.InvalidRequestError, match="ranks are 0 to 3"):
        cluster.run("1", ranks=[4])


def test_call_returns_values_by_rank(cluster: Cluster) -> None:
    """An importable function runs on every worker; a failure in it is one exception."""
    assert cluster.call("operator:add", 2, 3) == [5, 5, 5, 5]
    with pytest.raises(errors.WorkerError, match="ZeroDivisionError"):
        cluster.call("operator:truediv", 1, 0)


def test_timeout_names_who_was_late(hasty: Cluster) -> None:
    """A cell past its deadline is stopped, and the late worker is named with its line."""
    with pytest.raises(errors.CellTimeoutError) as caught:
        hasty.run("import jax, time\nif jax.process_index() == 3: time.sleep(1000)", timeout=1)
    assert "rank 3" in str(caught.value)
    assert "line 2" in str(caught.value)
    with pytest.raises(errors.CellTimeoutError, match=r"ran past its 0.5 s and was stopped"):
        hasty.run("import time\ntry: time.sleep(1000)\nexcept KeyboardInterrupt: pass", timeout=0.5)
    assert hasty.run("1").values == [1] * 4


def test_interrupt_reaches_every_worker(hasty: Cluster) -> None:
    """Ctrl-C in a running cell interrupts all workers, keeps their variables and leaves the cluster usable."""
    hasty.run("kept = 5")
    with pytest.raises(KeyboardInterrupt):
        hasty.run(
            "import time\nprint('asleep', flush=True)\ntime.sleep(1000)",
            on_update=interrupt_once_printed("asleep"),
        )
    assert hasty.run("kept").values == [5] * 4


def test_a_submitted_cell_runs_while_the_notebook_goes_on(hasty: Cluster) -> None:
    """A handle tells progress, gives the result, and can be cancelled, which leaves a usable cluster."""
    handle = hasty.submit("import time\nprint('on my way', flush=True)\ntime.sleep(1)\n5")
    with pytest.raises(errors.CellTimeoutError):
        handle.result(0.1)
    assert not handle.done
    assert handle.result(30).values == [5] * 4
    assert "on my way" in str(handle)
    endless = hasty.submit("import time\ntime.sleep(1000)")
    endless.cancel()
    with pytest.raises(errors.ClusterError, match="was cancelled"):
        endless.result(30)
    with pytest.raises(errors.ClusterError, match="was cancelled"):
        asyncio.run(awaited(endless))
    assert hasty.run("6").values == [6] * 4


async def awaited(handle: CellHandle) -> CellResult:
    """What a cell left, as a coroutine of the user's gets it."""
    return await handle


NOTEBOOK = """
import sys
import time
import multislice_nb as ms

handle = ms.attach(sys.argv[1]).submit(sys.argv[2])
while "step 3" not in str(handle): time.sleep(0.05)
"""


@pytest.mark.timeout(120)
def test_a_cell_outlives_the_notebook(cluster: Cluster) -> None:
    """A notebook that ends in the middle of a cell finds all its output and values when it attaches again."""
    code = "import time\nfor i in range(40): print('step', i, flush=True); time.sleep(0.1)\ni * i"
    subprocess.run([sys.executable, "-c", NOTEBOOK, cluster.name, code], check=True)
    reattach(cluster)
    assert "was left here" in str(cluster)
    with pytest.raises(errors.ClusterError, match="left running"):
        cluster.run("1")
    result = cluster.collect()
    assert result.stdout == ["".join(f"step {i}\n" for i in range(40))] * 4
    assert result.values == [39 * 39] * 4
    with pytest.raises(errors.ClusterError, match="No cell was left"):
        cluster.collect()
    assert cluster.run("1").values == [1] * 4
    reattach(cluster)
    assert cluster.left is None


def reattach(cluster: Cluster) -> None:
    """Give the module's cluster a connection again, after another one took over."""
    again = ms.attach(cluster.queued_resource)
    cluster.journal.close()
    registry.add(cluster)
    cluster._formation, cluster._operator, cluster.journal = again._formation, again._operator, again.journal
    for cached in ("reach", "environment"):  # made for the connections before
        vars(cluster).pop(cached, None)


async def interrupted(seen: list[Cluster] | None = None, cluster: Cluster | None = None) -> None:
    """What ends before it is done; with a list, the cluster that it was called for is added to that."""
    if seen is not None and cluster is not None:
        seen.append(cluster)
    raise RuntimeError


def test_detach_and_attach_find_the_same_gang(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines outlive the notebook's connection, with their variables; one that breaks off leaves nothing open."""
    cluster.run("import os\nkept = 7")
    pids = cluster.run("os.getpid()").values
    again = ms.attach(cluster.queued_resource)
    assert not cluster.alive
    assert again.run("kept").values == [7] * 4
    assert again.run("os.getpid()").values == pids
    sync(again._operator.receipts.give)
    with monkeypatch.context() as patch:
        patch.setattr(again._operator.receipts, "give", interrupted)
        with pytest.raises(RuntimeError):
            again.detach()
        assert not again._formation.connections.ranks
        made: list[Cluster] = []
        patch.setattr(Cluster, "find_left", lambda self: interrupted(made, self))
        with pytest.raises(RuntimeError):
            ms.attach(cluster.queued_resource)
        assert [one._formation.connections.ranks for one in made] == [()]
    with pytest.raises(errors.ClusterError, match="detached"):
        again.run("1")
    reattach(cluster)


def test_secrets_on_a_worker_are_its_owners_alone(cluster: Cluster) -> None:
    """Connection files hold keys: nobody else may read them, and no text form shows them."""
    files = cluster.run(
        "import pathlib\n[str(p) for p in pathlib.Path.home().glob('.multislice_nb/clusters/**/*.json')]"
    )
    paths = [Path(name) for names in files.values for name in names]
    assert any("ipcontroller-client" in path.name for path in paths)
    for path in paths:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 or path.parent.stat().st_mode & 0o077 == 0
    key = cluster.client.curve_secretkey.decode()
    assert key not in repr(cluster) + str(cluster) + cluster._repr_html_()


@pytest.mark.timeout(120)
def test_blocked_workers_are_named_and_freed(hasty: Cluster) -> None:
    """Workers that wait in a collective for one that raised are named with their line; a restart frees them."""
    with pytest.raises(errors.WorkerError) as caught:
        hasty.run(f"import jax\nif jax.process_index() == 2: raise ValueError('bad')\n{BARRIER}")
    text = str(caught.value)
    assert text.startswith("ValueError on rank 2")
    assert "Ranks 0-1, 3 at line 3" in text
    assert hasty.run("1", ranks=[2]).values == [1]
    with pytest.raises(errors.ClusterError, match="still run an earlier cell"):
        hasty.run("1")
    hasty.restart()
    assert hasty.run("import jax\njax.device_count()").values == [16] * 4


@pytest.mark.timeout(120)
def test_interrupt_frees_a_blocked_collective(hasty: Cluster) -> None:
    """Ctrl-C while workers block in C++, where an interrupt does not reach, leaves a usable cluster too."""
    with pytest.raises(KeyboardInterrupt):
        hasty.run(
            "import jax, time\nprint('waiting', flush=True)\n"
            f"if jax.process_index() == 0: time.sleep(1000)\n{BARRIER}",
            on_update=interrupt_once_printed("waiting"),
        )
    assert hasty.run("import jax\njax.device_count()").values == [16] * 4


@pytest.mark.timeout(120)
def test_a_stopped_worker_is_named(cluster: Cluster, emulator_home: Path) -> None:
    """SIGSTOP of one in a loop of collectives ends the cell with its name; a restart that fails leaves no process."""
    code = f"""
import jax, os, signal
for step in range(100_000):
    {BARRIER}
    if step == 3 and jax.process_index() == 3: os.kill(os.getpid(), signal.SIGSTOP)
"""
    with pytest.raises(errors.WorkerLostError) as caught:
        cluster.run(code)
    assert "rank 3 (slice 1, worker 1)" in str(caught.value)
    assert "stopped by SIGSTOP" in str(caught.value)
    settings = f"~/.multislice_nb/clusters/{cluster.name}/engine.json"
    cluster.shell.run(f"rm {settings}; mkdir {settings}", ranks=3)
    with pytest.raises(errors.StartError, match="rank 3 could not start an engine"):
        cluster.restart()
    assert not processes_of(cluster, emulator_home)
    cluster.shell.run(f"rmdir {settings}", ranks=3)
    cluster.restart()
    assert cluster.run("1").values == [1] * 4


@pytest.mark.timeout(120)
def test_a_worker_that_sees_other_devices_is_named(cluster: Cluster) -> None:
    """JAX must see all devices of all slices, whatever variables say; a restart ends what runs and waits before it."""
    wrong = '{"JAX_NUM_CPU_DEVICES": "2", "MEGASCALE_NUM_SLICES": "7", "MEGASCALE_SLICE_ID": "6", '
    wrong += '"PYTHONPATH": "/mine"}'
    kept = "~/.multislice_nb/environment.json"
    cluster.shell.run(f"echo '{wrong}' > {kept}", ranks=2)
    running = begun(cluster)
    waiting = cluster.submit("1")
    with pytest.raises(errors.StartError) as caught:
        cluster.restart()
    with pytest.raises(errors.WorkerError, match="The gang was started anew"):
        running.result(30)
    with pytest.raises(errors.ClusterError, match="nothing was run"):
        waiting.result(30)
    assert "has device_count 14; 2 x v4-16 should give 16" in str(caught.value)
    cluster.shell.run(f"sed -i s/JAX_NUM_CPU_DEVICES/UNUSED/ {kept}", ranks=2)
    cluster.restart()
    code = "import os\nos.environ['MEGASCALE_NUM_SLICES'], os.environ['MEGASCALE_SLICE_ID']"
    assert cluster.run(code).values == [("2", "0"), ("2", "0"), ("2", "1"), ("2", "1")]
    assert cluster.run("import sys\n'/mine' in sys.path").values == [False, False, True, False]
    cluster.shell.run(f"rm {kept}", ranks=2)


def test_a_gang_on_another_backend_is_refused(cluster: Cluster) -> None:
    """JAX that fell back to CPU where TPUs are is an error that names the worker, not a slow cell."""
    formation = cluster._formation
    pretended = Formation(replace(formation.site, tpu=True))
    pretended.devices = formation.devices
    with pytest.raises(
        errors.StartError, match=r"rank 0 \(slice 0, worker 0\) has backend cpu; .* should give tpu"
    ):
        pretended._check_devices()


def test_output_comes_before_the_error(cluster: Cluster) -> None:
    """What a failing cell printed last, a line without an end too, is in the error's result."""
    with pytest.raises(errors.WorkerError) as caught:
        cluster.run("for i in range(2000): print(i)\nprint('no end of line', end='')\n1 / 0")
    assert caught.value.result is not None
    assert all(text.endswith("1999\nno end of line") for text in caught.value.result.stdout)


def test_shutdown_leaves_no_process(cluster: Cluster, emulator_home: Path) -> None:
    """After a shutdown, engines, controller and nannies are gone from every worker, and the cell that ran there."""
    pids = cluster.run("import os\nos.getpid()").values
    handle = begun(cluster)
    cluster.shutdown()
    with pytest.raises(errors.ClusterError, match="gang was shut down, and what ran there ended with it"):
        handle.result(timeout=60)
    assert gone(pids)
    assert not processes_of(cluster, emulator_home)


def begun(cluster: Cluster) -> CellHandle:
    """A cell that never ends, once it runs."""
    handle = cluster.submit("import time\nprint('begun', flush=True)\nwhile True: time.sleep(0.05)")
    while "begun" not in str(handle):
        assert not handle.done
        time.sleep(0.05)
    return handle


def processes_of(cluster: Cluster, emulator_home: Path) -> list[str]:
    """The command lines of a gang's processes that live."""
    commands = (" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"]))
    engine = f"multislice_nb.cluster.engine {emulator_home}"
    return [command for command in commands if engine in command and f"/{cluster.name} " in command]
