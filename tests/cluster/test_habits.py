"""What people do in cells: wait, ask, leave, fork, start threads, clear names, fill the memory."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from multislice_nb import errors
from multislice_nb.magics.cells import CellInterrupted, run_cell
from tests.gangs import interrupt_once_printed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from multislice_nb.cluster import Cluster

pytestmark = pytest.mark.timeout(120)

GROUPS = Path("/sys/fs/cgroup")
"""Where the kernel's groups of processes are, memory having its own folder in the first version of them."""


def test_top_level_await(cluster: Cluster) -> None:
    """A cell awaits as in a notebook, its failure has its line, and objects of its loop live on to the next cell."""
    assert cluster.run("import asyncio\nasync def three():\n    await asyncio.sleep(0.01)\n    return 3")
    assert (
        cluster.run("queue = asyncio.Queue()\nsum(await asyncio.gather(three(), three()))").values == [6] * 4
    )
    result = cluster.run(
        "task = asyncio.create_task(queue.get())\nawait asyncio.sleep(0)\nprint('in')\n1", check=False
    )
    assert (result.stdout, result.values) == (["in\n"] * 4, [1] * 4)
    assert cluster.run("await queue.put(7)\nawait task").values == [7] * 4
    with pytest.raises(errors.WorkerError, match="ZeroDivisionError") as caught:
        cluster.run("await three()\nawait asyncio.sleep(0) or 1 / 0")
    assert 'File "<cell' in str(caught.value)
    assert "line 2" in str(caught.value)


def test_an_awaiting_cell_is_interrupted(cluster: Cluster) -> None:
    """Ctrl-C ends what a cell awaits, which cleans up first, and leaves variables as they were."""
    code = "import asyncio\ncleaned = False\ntry:\n    print('waiting', flush=True)\n    await asyncio.sleep(1000)\nfinally:\n    cleaned = True"
    with pytest.raises(KeyboardInterrupt):
        cluster.run(code, on_update=interrupt_once_printed("waiting"))
    assert cluster.run("cleaned").values == [True] * 4


@pytest.mark.parametrize("code", ["exit()", "quit", "import sys; sys.exit()"])
def test_nobody_leaves(cluster: Cluster, code: str) -> None:
    """To exit is an outcome of the cell, without misleading advice, and the engines live on."""
    before = cluster.run("import os\nos.getpid()").values
    result = cluster.run(code, check=False)
    assert [error.message for error in result.errors if error] == ["SystemExit"] * 4
    assert result.stderr == [""] * 4
    assert cluster.run("os.getpid()").values == before


@pytest.mark.parametrize(
    "code", ["input('name? ')", "import getpass; getpass.getpass('key')", "breakpoint()"]
)
def test_nobody_is_asked(cluster: Cluster, code: str) -> None:
    """What waits for a person says at once that none sits there, and what to do instead."""
    with pytest.raises(errors.WorkerError, match="nobody sits at a worker") as caught:
        cluster.run(code)
    assert "unattended.py" not in str(caught.value)


def test_names_may_be_cleared(cluster: Cluster) -> None:
    """`%reset` takes the user's names and nothing that the executor needs."""
    cluster.run("x = 1")
    cluster.run("%reset -f")
    assert cluster.run("'x' in globals()").values == [False] * 4


def test_help_and_semicolons(cluster: Cluster) -> None:
    """`name?` shows its page, and a value behind which a semicolon is stays where it is."""
    assert "Return the number of items in a container" in cluster.run("len?").stdout[0]
    result = cluster.run("6 * 7;  # hidden")
    assert (str(result), result.values) == ("", [None] * 4)


def test_progress_bars_are_text(cluster: Cluster) -> None:
    """tqdm.auto draws its bar where it can be seen; a widget is refused with the reason."""
    result = cluster.run("from tqdm.auto import tqdm\nfor _ in tqdm(range(3)): pass")
    assert all("3/3" in text and "IProgress" not in text for text in result.stderr)
    assert result.displays == [()] * 4
    assert cluster.run("import importlib.util\nimportlib.util.find_spec('ipywidgets')").values == [None] * 4
    with pytest.raises(errors.WorkerError, match="A widget made on a worker cannot be shown"):
        cluster.run("import ipywidgets")


def test_text_that_is_no_text(cluster: Cluster) -> None:
    """A lone surrogate, as in the name of a file in another encoding, is printed as its escape."""
    assert cluster.run(r"print('caf\udce9')").stdout == ["caf\\udce9\n"] * 4


@pytest.mark.parametrize(
    "ruin", ["sys.stdout.close()", "sys.stdout = open(os.devnull); sys.stdout.close()", "sys.stdout = None"]
)
def test_streams_may_be_closed(cluster: Cluster, ruin: str) -> None:
    """A cell that closes or replaces its standard output ends all the same, and the next one is heard."""
    cluster.run(f"import os, sys\n{ruin}")
    assert cluster.run("print('heard')").stdout == ["heard\n"] * 4


def test_long_messages_are_cut(cluster: Cluster) -> None:
    """The first line about a failure is a line, and a message of any length leaves a screen that can be read."""
    with pytest.raises(errors.WorkerError) as caught:
        cluster.run("raise ValueError('short\\n' + 'x' * 1_000_000 + ' the end')")
    text = str(caught.value)
    assert text.splitlines()[0].endswith(": short")
    assert "characters left out" in text
    assert "the end" in text
    assert len(text) < 30_000


def test_a_late_thread_is_heard(cluster: Cluster, tmp_path: Path) -> None:
    """What a thread prints when its cell has ended comes with the next cell, and is on disk."""
    cluster.run(f"""
import os, pathlib, threading, time
from multislice_nb.cluster import record
def late():
    while record._open is not None: time.sleep(0.01)
    print("late")
    (pathlib.Path({str(tmp_path)!r}) / str(os.getpid())).touch()
threading.Thread(target=late).start()
""")
    limit = time.monotonic() + 30
    while len(list(tmp_path.iterdir())) < 4:
        assert time.monotonic() < limit
        time.sleep(0.05)
    assert cluster.run("print('mine')").stdout == ["late\nmine\n"] * 4
    assert all("late\nmine\n" in cluster.journal.path(rank).read_text() for rank in range(4))


def test_pools_of_forked_children_end(cluster: Cluster) -> None:
    """A child forked by a cell ends at SIGTERM, as a pool asks of its children and waits for."""
    code = "import multiprocessing, time\nchild = multiprocessing.get_context('fork').Process(target=time.sleep, args=(1000,))\n"
    code += "child.start(); child.terminate(); child.join(); child.exitcode"
    assert cluster.run(code).values == [-signal.SIGTERM] * 4


def test_commands_say_nothing_of_forks(cluster: Cluster) -> None:
    """`!command` shows what the command prints, and no warning about how it was started."""
    result = cluster.run("!echo hello")
    assert (result.stdout, result.stderr) == (["hello\n"] * 4, [""] * 4)


def test_an_interrupt_that_had_to_kill_says_so(hasty: Cluster) -> None:
    """Variables that went with a killed gang are not said to be kept."""
    code = "import time\nprint('deaf', flush=True)\nwhile True:\n    try: time.sleep(1)\n    except KeyboardInterrupt: pass"
    interrupted = interrupt_once_printed("deaf")
    run, hasty.run = hasty.run, lambda *args, on_update, **rest: run(*args, on_update=interrupted, **rest)  # type: ignore[method-assign]
    try:
        with pytest.raises(CellInterrupted, match="its variables are lost"):
            run_cell(hasty, code, watched=False)
    finally:
        del hasty.run
    assert hasty.run("1").values == [1] * 4


@pytest.fixture
def little_memory(tmp_path: Path) -> Iterator[Callable[[int, int], None]]:
    """Gives a process little memory: its id, and the bytes that it may take from now on."""
    old = GROUPS / "memory"
    group = (old if old.is_dir() else GROUPS) / f"multislice-nb-{os.getpid()}"
    limit = group / ("memory.limit_in_bytes" if old.is_dir() else "memory.max")
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no group of processes can be made here: {error}")

    def give(pid: int, size: int) -> None:
        if not limit.exists():
            pytest.skip("groups of processes have no limit of memory here")
        limit.write_text(str(size))
        swap = group / "memory.swap.max"
        if swap.exists():
            swap.write_text("0")
        (group / "cgroup.procs").write_text(str(pid))

    yield give
    for pid in (group / "cgroup.procs").read_text().split():
        os.kill(int(pid), signal.SIGKILL)
    while (group / "cgroup.procs").read_text():
        time.sleep(0.01)
    group.rmdir()


def test_a_worker_out_of_memory_is_told_as_such(
    cluster: Cluster, little_memory: Callable[[int, int], None]
) -> None:
    """The kernel kills an engine that takes more than it may: the message names the worker and the reason."""
    pid = cluster.run("import os\nos.getpid()").values[2]
    little_memory(pid, 64 << 20)
    with pytest.raises(errors.WorkerLostError) as caught:
        cluster.run(
            "import jax, time\nif jax.process_index() == 2: x = b'x' * (1 << 30)\nelse: time.sleep(1000)"
        )
    text = str(caught.value)
    assert text.startswith("WorkerLost on rank 2 (slice 1, worker 0)")
    assert "killed by SIGKILL; the kernel killed for lack of memory there meanwhile" in text
    cluster.restart()
    assert cluster.run("1").values == [1] * 4
