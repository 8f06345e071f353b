"""Cells while SSH drops, workers crash, and nobody says a word."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from multislice_nb import errors
from multislice_nb._portal import sync
from multislice_nb.cluster import GangSettings, operator
from multislice_nb.cluster.engines import Engines
from multislice_nb.emulator import control
from tests.processes import gone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from multislice_nb.cluster import Cluster
    from multislice_nb.cluster.progress import CellProgress

pytestmark = pytest.mark.timeout(120)

STEPS = """
import time
for i in range({count}):
    print('step', i, flush=True)
    time.sleep(0.1)
i * i
"""
BARRIER = "from jax.experimental import multihost_utils; multihost_utils.sync_global_devices('b')"


def whole(count: int) -> list[str]:
    """What `STEPS` prints on all workers."""
    return ["".join(f"step {i}\n" for i in range(count))] * 4


@contextlib.contextmanager
def patience(cluster: Cluster, **settings: Any) -> Iterator[None]:
    """Other settings for a while, with short graces."""
    kept = cluster.settings
    cluster.settings = replace(GangSettings(grace=1.0, interrupt_grace=2.0), **settings)
    try:
        yield
    finally:
        cluster.settings = kept


def once(wanted: str, act: Callable[[], None]) -> tuple[list[CellProgress], Callable[[CellProgress], None]]:
    """Do something the first time that a cell's progress holds a text; all looks are kept."""
    looks: list[CellProgress] = []
    done: list[bool] = []

    def look(progress: CellProgress) -> None:
        looks.append(progress)
        if wanted in str(progress) and not done:
            done.append(True)
            act()

    return looks, look


@contextlib.contextmanager
def no_ssh(node: str) -> Iterator[Callable[[], None]]:
    """What cuts SSH to a node's workers; they answer again at the end, or when the second text was seen."""
    with control.connect() as emulator:
        try:
            yield lambda: emulator.inject("ssh-refused", node=node)
        finally:
            emulator.clear_faults()


def answer_again() -> None:
    """Let SSH be answered everywhere."""
    with control.connect() as emulator:
        emulator.clear_faults()


def test_a_cell_goes_on_while_ssh_is_cut(cluster: Cluster) -> None:
    """SSH to the controller's slice fails in the middle of a cell: it is said, and the result is whole all the same."""
    with no_ssh("gang-0") as cut:
        looks, look = once("step 3", cut)
        _, again = once("has not been reached over SSH", answer_again)

        def both(progress: CellProgress) -> None:
            look(progress)
            again(progress)

        result = cluster.run(STEPS.format(count=40), on_update=both)
    assert result.stdout == whole(40)
    assert result.values == [39 * 39] * 4
    notices = {notice for progress in looks for notice in progress.notices}
    assert any(
        text.startswith("Rank 0 (slice 0, worker 0) has not been reached over SSH") for text in notices
    )
    assert cluster.journal.path(0).read_text().count("step 39\n") == 1
    assert cluster.run("1").values == [1] * 4


def test_displays_and_errors_come_through_a_cut(cluster: Cluster) -> None:
    """Rich output made while nothing is heard, and the failure at the end, are those of the worker's record."""
    code = """
import time
from IPython.display import HTML, display
for i in range(12):
    display(HTML(f"<b>{i}</b>")); print(i, flush=True); time.sleep(0.1)
raise ValueError("at the end")
"""
    _, look = once("\n3", lambda: sync(cluster._formation.connections.abort))
    result = cluster.run(code, on_update=look, check=False)
    assert [display["text/html"] for display in result.displays[2]] == [f"<b>{i}</b>" for i in range(12)]
    assert [error.ename for error in result.errors if error] == ["ValueError"] * 4


def test_a_cell_that_never_arrived_runs_once(cluster: Cluster) -> None:
    """After a sleep the first cell goes into a dead connection: it runs all the same, and no worker runs it twice."""
    cluster.run("count = 0")
    sync(cluster._formation.connections.abort)
    assert cluster.run("count += 1; count").values == [1] * 4
    assert cluster.run("count").values == [1] * 4
    sync(cluster._formation.connections.abort)
    assert cluster.call("operator:add", 2, 3) == [5] * 4


def test_a_full_disk_on_a_worker_takes_no_reply(cluster: Cluster) -> None:
    """A worker that can keep no record answers all the same, and tells why, after a drop of SSH too."""
    limit = "import resource\n_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)\n"
    limit += "resource.setrlimit(resource.RLIMIT_FSIZE, ({}, hard))"
    cluster.run(limit.format(0), ranks=[2])
    try:
        assert "Not all of this is kept on the worker's disk" in cluster.run("1").stderr[2]
        _, look = once("step 3", lambda: sync(cluster._formation.connections.abort))
        assert cluster.run(STEPS.format(count=20), on_update=look).values == [19 * 19] * 4
    finally:
        cluster.run(limit.format("hard"), ranks=[2])
    assert cluster.run("1").stderr == [""] * 4


def test_an_error_here_leaves_the_cell_to_be_collected(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cell that this machine could not follow to its end goes on, is in nobody's way unnoticed, and is whole."""

    def fail(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(cluster.journal, "write", fail)
        with pytest.raises(MemoryError):
            cluster.run(STEPS.format(count=20))
    with pytest.raises(errors.ClusterError, match="was left running"):
        cluster.run("1")
    assert cluster.collect().stdout == whole(20)


def test_the_end_of_python_stops_no_cell(cluster: Cluster) -> None:
    """What Python's exit cancels here goes on on the workers, and is collected later."""
    handle = cluster.submit(STEPS.format(count=20))
    while "step 3" not in str(handle):
        assert not handle.done
        time.sleep(0.05)
    operator._leave_at_exit(weakref.ref(cluster._operator))
    handle.cancel()  # as the end of the background loop does
    while cluster.running[0]:
        time.sleep(0.05)
    assert cluster.collect().stdout == whole(20)


def test_commands_and_files_connect_again(cluster: Cluster) -> None:
    """Between cells a dropped connection is made anew by whatever needs it first."""
    sync(cluster._formation.connections.abort)
    assert cluster.shell.run("echo $MULTISLICE_NB_RANK").stdout == ["0\n", "1\n", "2\n", "3\n"]
    assert cluster.run("1").values == [1] * 4


def test_nobody_waits_for_ever_for_ssh(cluster: Cluster) -> None:
    """After the deadline the worker that cannot be reached is named; its cell is collected once it can."""
    with no_ssh("gang-0") as cut, patience(cluster, reconnect=1.0):
        _, look = once("step 3", cut)
        with pytest.raises(
            errors.ConnectError, match=r"Rank 0 \(slice 0, worker 0\) .* The cell goes on there"
        ):
            cluster.run(STEPS.format(count=60), on_update=look)
        with pytest.raises(errors.ConnectError, match="nothing was run"):
            cluster.run("1")
    result = cluster.collect()
    assert result.stdout == whole(60)
    assert cluster.run("1").values == [1] * 4


def test_an_interrupt_during_a_cut_says_that_the_cell_goes_on(cluster: Cluster) -> None:
    """Ctrl-C cannot reach the workers then: the cell is left there, and collected or interrupted later."""
    with no_ssh("gang-0") as cut:
        _, look = once("step 3", cut)
        _, interrupt = once("has not been reached", lambda: os.kill(os.getpid(), signal.SIGINT))

        def both(progress: CellProgress) -> None:
            look(progress)
            interrupt(progress)

        with pytest.raises(KeyboardInterrupt):
            cluster.run(STEPS.format(count=60), on_update=both)
        assert "has not been reached" in str(cluster)
        with pytest.raises(errors.ConnectError, match="nothing can be interrupted"):
            cluster.interrupt()
    assert cluster.collect().stdout == whole(60)


def test_how_an_engine_ended_is_read_from_its_worker(cluster: Cluster) -> None:
    """A note of its end that a full disk left empty counts as none; the kernel's killing for memory is no reset."""
    formation = cluster._formation
    engines = Engines(formation.connections, formation.site.workers, {}, "ended")
    make = (
        f"cd && mkdir -p {engines.folder} && cd {engines.folder} && : > engine.end && echo last > engine.log"
    )
    sync(formation.connections.run, 1, make)
    told = sync(engines.endings, [1])[1]
    assert told.splitlines()[0].endswith("its end was not seen")
    assert told.splitlines()[1] == "last"
    assert "was reset" in sync(engines.vanished, 1)
    note = "1.0 killed by SIGKILL; the kernel killed for lack of memory there meanwhile"
    sync(formation.connections.run, 1, f"cd {engines.folder} && echo '{note}' > engine.end")
    assert sync(engines.vanished, 1) == ""
    sync(formation.connections.run, 1, f"rm -r {engines.folder}")


def test_a_silent_cell_says_where_its_workers_stand(cluster: Cluster) -> None:
    """When no worker is heard for long, a notice names the line of each; the cell itself is left alone."""
    code = f"import jax, time\nif jax.process_index() == 2:\n    time.sleep(4)\n{BARRIER}\n7"
    with patience(cluster, silence=1.0):
        looks, look = once("-", lambda: None)
        assert cluster.run(code, on_update=look).values == [7] * 4
    text = next(notice for progress in looks for notice in progress.notices)
    assert "No worker has printed or ended since" in text
    assert "anks 0-1, 3 at line 4" in text
    assert "ank 2 at line 3" in text


def test_a_hang_can_be_ended_by_itself(cluster: Cluster) -> None:
    """With abort_on_hang and auto_restart a deadlocked cell ends, names where all stood, and leaves a new gang."""
    code = (
        f"import jax\nif jax.process_index() != 2:\n    {BARRIER}\nelse:\n    import time; time.sleep(1000)"
    )
    with patience(cluster, silence=1.0, abort_on_hang=True, auto_restart=True):
        with pytest.raises(errors.CellTimeoutError) as caught:
            cluster.run(code)
        text = str(caught.value)
        assert "No worker printed or ended for 1 s; the cell was stopped on all 4" in text
        assert "line 3" in text
        assert "The gang was started anew" in text
        assert "variables on all workers are lost" in text
        assert cluster.run("import jax\njax.device_count()").values == [16] * 4


def test_a_restart_is_offered_or_done(cluster: Cluster) -> None:
    """A lost worker's message names magic and call that start the gang anew, or says that this was done."""
    code = "import jax, os, signal\nif jax.process_index() == 1: os.kill(os.getpid(), signal.{})\nimport time; time.sleep(1000)"
    with patience(cluster):
        with pytest.raises(errors.WorkerLostError) as caught:
            cluster.run(code.format("SIGSEGV"))
        text = str(caught.value)
        assert "rank 1 (slice 0, worker 1)" in text
        assert "killed by SIGSEGV" in text
        assert "Segmentation fault" not in text.splitlines()[0]
        assert "%multislice restart gang or cluster.restart()" in text
    with patience(cluster, auto_restart=True):
        with pytest.raises(errors.WorkerLostError, match="nothing was run") as caught:
            cluster.run("1")
        assert "The gang was started anew" in str(caught.value)
        assert cluster.run("1").values == [1] * 4
        with pytest.raises(errors.WorkerLostError, match="started anew"):
            cluster.run(code.format("SIGKILL"))
        assert cluster.run("1").values == [1] * 4


def test_an_abort_is_told_with_the_end_of_the_log(cluster: Cluster) -> None:
    """A process that C++ aborts, as jax's coordination service does, is told with what it wrote last."""
    code = """
import jax, os, time
if jax.process_index() == 3:
    os.write(2, b"F0000 coordination: Terminating process because a peer is gone\\n")
    os.abort()
time.sleep(1000)
"""
    with patience(cluster, auto_restart=True):
        with pytest.raises(errors.WorkerLostError) as caught:
            cluster.run(code)
        assert "killed by SIGABRT" in str(caught.value)
        assert "Terminating process because a peer is gone" in str(caught.value)


def test_a_loss_is_told_though_the_api_does_not_answer(cluster: Cluster) -> None:
    """The Cloud TPU API is asked why a worker is lost, but nobody waits long for it."""
    with control.connect() as emulator, patience(cluster, auto_restart=True, inquiry=1.0):
        emulator.inject("api-latency", seconds=3600)
        try:
            with pytest.raises(errors.WorkerLostError, match="killed by SIGKILL"):
                cluster.run(
                    "import jax, os, time\nif jax.process_index() == 2: os.kill(os.getpid(), 9)\ntime.sleep(1000)"
                )
        finally:
            emulator.clear_faults()
    assert cluster.run("1").values == [1] * 4


def test_a_shutdown_ends_whom_it_can_reach(cluster: Cluster) -> None:
    """Workers that do not answer are named, and the engines of all others are ended all the same."""
    pids = cluster.run("import os\nos.getpid()").values
    with no_ssh("gang-1") as cut:
        cut()
        with pytest.raises(errors.ConnectError, match=r"Ranks 2-3 could not be reached, and what .* runs on"):
            cluster.shutdown()
    assert gone(pids[:2])
