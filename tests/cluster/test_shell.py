"""Shell commands on real workers over SSH: at once, each with its exit status, and detached."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from multislice_nb import errors
from multislice_nb.cluster import errand
from tests.processes import gone

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from multislice_nb.cluster.progress import CellProgress
    from multislice_nb.cluster.reaching import Reach


def once_printed(text: str, act: Callable[[], object]) -> Callable[[CellProgress], None]:
    """Act as soon as a command has printed something."""
    done = threading.Event()

    def look(progress: CellProgress) -> None:
        if text in str(progress) and not done.is_set():
            done.set()
            act()

    return look


def test_a_command_runs_everywhere_at_once(reached: Reach, tmp_path: Path) -> None:
    """Each worker waits for all the others, so the command ends only if none waits for a batch before it."""
    result = reached.shell.run(
        f"touch {tmp_path}/$MULTISLICE_NB_RANK; until [ $(ls {tmp_path} | wc -l) = 4 ]; do sleep 0.05; done; echo met",
        timeout=60,
    )
    assert result.exit_statuses == [0, 0, 0, 0]
    assert str(result) == "[all 4] met"


def test_output_and_status_of_each_worker(reached: Reach) -> None:
    """Streams are apart, statuses by rank, and the first failure in time is the one that is told."""
    result = reached.shell.run(
        "echo out $MULTISLICE_NB_RANK; echo err >&2; exit $MULTISLICE_NB_RANK", check=False
    )
    assert result.stdout == [f"out {rank}\n" for rank in range(4)]
    assert result.stderr == ["err\n"] * 4
    assert result.exit_statuses == [0, 1, 2, 3]
    with pytest.raises(errors.WorkerError) as caught:
        reached.shell.run("[ $MULTISLICE_NB_RANK = 1 ] || sleep 0.5; echo reason >&2; exit 3", ranks="1-2")
    assert str(caught.value).startswith(
        "ExitStatus on rank 1 (slice 0, worker 1), first of 2 failures: exit status 3"
    )
    assert "reason" in str(caught.value)
    assert "Also on rank 2" in str(caught.value)
    assert caught.value.result is not None
    assert caught.value.result.values == [3, 3]


def test_a_signal_is_told_as_such(reached: Reach) -> None:
    """A process that was killed, as by the kernel for its memory, is no plain exit status."""
    result = reached.shell.run("kill -KILL $$", ranks=[2], check=False)
    assert result.exit_statuses == [-9]
    assert "killed by SIGKILL" in str(result)


def test_everything_printed_is_kept(reached: Reach) -> None:
    """A flood of lines is whole in the result and in this machine's log of each worker."""
    result = reached.shell.run("seq 1 20000; echo end >&2")
    expected = "".join(f"{number}\n" for number in range(1, 20001))
    assert result.stdout == [expected] * 4
    assert result.stderr == ["end\n"] * 4
    assert all(expected in reached.journal.path(rank).read_text() for rank in range(4))


def test_a_mark_in_the_output_is_output(reached: Reach) -> None:
    """What a command prints can be anything; nothing of it is taken for a word of ours."""
    text = '\\x1e{"answer": 1}\\nmore\\x1e\\n\\xc3\\xa9'
    result = reached.shell.run(f"printf '{text}' >&2; printf 'caf\\xc3\\xa9'", ranks=0)
    assert result.stdout == ["café"]
    assert result.stderr == ['\x1e{"answer": 1}\nmore\x1e\né']


def test_a_command_that_cannot_start_is_no_lost_worker(reached: Reach) -> None:
    """What keeps a worker from starting it is told as it is there."""
    with pytest.raises(errors.WorkerError, match=r"FileNotFoundError on rank 0 .*nowhere"):
        reached.shell.run("true", cwd="nowhere", ranks=0)


def test_input_folder_and_variables(reached: Reach, homes: list[Path]) -> None:
    """A command gets what it should read, where it should run and what it should find."""
    (homes[1] / "somewhere").mkdir(exist_ok=True)
    result = reached.shell.run(
        "cat; pwd; echo $COLOR", stdin="line\n", cwd="somewhere", environment={"COLOR": "red;ls"}, ranks=1
    )
    assert result.stdout == [f"line\n{homes[1]}/somewhere\nred;ls\n"]


def test_a_deadline_ends_the_command_and_what_it_started(reached: Reach) -> None:
    """Past its time a command is ended with its children, also one that ignores the polite signal."""
    with pytest.raises(errors.CellTimeoutError, match="on rank 0") as caught:
        reached.shell.run(
            "trap '' TERM; sleep 300 & echo $! $$; [ $MULTISLICE_NB_RANK = 1 ] || wait",
            timeout=1.5,
            ranks="0-1",
        )
    assert caught.value.result is not None
    pids = [int(word) for word in caught.value.result.stdout[0].split()]
    assert len(pids) == 2
    assert gone(pids)
    left_on_purpose = int(caught.value.result.stdout[1].split()[0])
    os.kill(left_on_purpose, signal.SIGKILL)


def test_an_interrupt_reaches_every_worker(reached: Reach) -> None:
    """Ctrl-C in the notebook interrupts the command on all workers, and leaves no process."""
    shown: list[str] = []

    def look(progress: CellProgress) -> None:
        shown.append(str(progress))
        if str(progress).count("pid") == 4:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        reached.shell.run("echo pid $$; exec sleep 300", on_update=look)
    pids = [int(line.split()[1]) for line in shown[-1].splitlines() if line.startswith("pid")]
    assert len(pids) == 4
    assert gone(pids)


def test_a_failure_may_end_the_others(reached: Reach) -> None:
    """With a grace, workers that would wait for one that failed are ended, and told as such."""
    began = time.monotonic()
    with pytest.raises(errors.WorkerError) as caught:
        reached.shell.run("[ $MULTISLICE_NB_RANK = 3 ] && exit 5; sleep 300", grace=0.5)
    assert time.monotonic() - began < 60
    assert str(caught.value).startswith("ExitStatus on rank 3")
    assert "Ranks 0-2: still running, and was stopped" in str(caught.value)


def test_a_script_that_uses_every_device_runs_from_a_folder(
    reached: Reach, homes: list[Path], tmp_path: Path
) -> None:
    """An unchanged JAX script joins all workers; a later change of the folder does not reach it."""
    script = tmp_path / "trainer/train.py"
    script.parent.mkdir()
    script.write_text(
        "import jax\njax.distributed.initialize()\n"
        "print(jax.device_count(), jax.process_index(), jax.local_devices()[0].slice_index)\n"
    )
    started = reached.shell.start("python3 train.py", name="train", folder=script.parent)
    reached.files.push(script, f".multislice_nb/folders/{script.parent.name}/")
    result = started.follow(timeout=100)
    assert result.stdout == ["16 0 0\n", "16 1 0\n", "16 2 1\n", "16 3 1\n"]
    assert (homes[3] / f".multislice_nb/commands/{started.id}/files/train.py").exists()


def test_a_detached_command_is_found_followed_and_stopped(reached: Reach) -> None:
    """It goes on when nobody looks, another notebook finds it, and stopping it ends all that it started."""
    from multislice_nb.cluster.reaching import reach

    started = reached.shell.start("echo $$; sleep 300 & echo $!; wait", name="sleeper", distributed=False)
    with reach(reached.site.name) as elsewhere:
        found = elsewhere.shell.find("sleeper")
        assert found.id == started.id
        with pytest.raises(errors.CellTimeoutError, match="still runs on all 4"):
            found.follow(timeout=1)
        pids = [int(word) for text in found.output().stdout for word in text.split()]
        assert len(pids) == 8
        assert found.status().running == [0, 1, 2, 3]
        assert str(found.stop()) == "sleeper: all 4: killed by SIGTERM"
    assert gone(pids)
    assert "sleeper" in str(reached.shell.detached())


def test_a_detached_command_that_fails_says_so_later(reached: Reach) -> None:
    """Its output and exit statuses are still there for who looks after its end."""
    command = "echo done $MULTISLICE_NB_DETACHED; exit $MULTISLICE_NB_WORKER_ID"
    started = reached.shell.start(command, name="late", distributed=False)
    with pytest.raises(errors.WorkerError, match="exit status 1"):
        started.follow(timeout=60)
    again = reached.shell.find("late").output()
    assert again.stdout == [f"done {started.id}\n"] * 4
    assert again.exit_statuses == [0, 1, 0, 1]
    assert str(started.status()) == "late: ranks 0, 2: exit status 0; ranks 1, 3: exit status 1"


def test_a_start_that_fails_somewhere_leaves_nothing_running(reached: Reach, homes: list[Path]) -> None:
    """A worker that cannot start it is named, and the others do not run it either."""
    for home in homes[:3]:
        (home / "here").mkdir(exist_ok=True)
    with pytest.raises(errors.ClusterError, match="Rank 3 could not start lonely"):
        reached.shell.start("sleep 300", name="lonely", cwd="here", distributed=False)
    assert not reached.shell.find("lonely").status().running


def test_an_interrupted_start_leaves_nothing_running(
    reached: Reach, homes: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C once workers have begun, and before all have said so, stops it on all of them."""

    def begun(home: Path) -> set[Path]:
        return set(home.glob(".multislice_nb/commands/*/pid.json"))

    async def errands(*args: Any, **options: Any) -> None:
        await errand.errands(*args, **options)
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()  # one that never says so

    monkeypatch.setattr("multislice_nb.cluster.shell.errands", errands)
    monkeypatch.setattr("multislice_nb.cluster.shell.INTERRUPT_DEADLINE", 0.5)
    before = [begun(home) for home in homes]
    with pytest.raises(KeyboardInterrupt):
        reached.shell.start("sleep 300", name="hasty", distributed=False)
    assert all(len(begun(home) - known) == 1 for home, known in zip(homes, before, strict=True))
    status = reached.shell.find("hasty").status()
    assert set(status.states.values()) == {"killed by SIGTERM"}


def test_no_stale_word_of_other_slices_survives(reached: Reach) -> None:
    """A command on one slice of several is told of no other, whatever the worker's own environment still says."""
    count = "env | grep -c ^MEGASCALE_ || true"
    assert reached.shell.run(count, slices=1).stdout == ["3\n", "3\n"]
    assert reached.shell.run(count, slices=1, distributed=True).stdout == ["0\n", "0\n"]
    result = reached.shell.run("echo $JAX_PROCESS_ID $JAX_NUM_PROCESSES", slices=1, distributed=True)
    assert result.stdout == ["0 2\n", "1 2\n"]


def test_nonsense_is_refused(reached: Reach) -> None:
    """No command, no such worker and no such detached command are told before anything is run."""
    with pytest.raises(errors.InvalidRequestError, match="no command to run"):
        reached.shell.run("  ")
    with pytest.raises(errors.InvalidRequestError, match="no slice 2"):
        reached.shell.run("true", slices="0,2")
    with pytest.raises(errors.InvalidRequestError, match="'nothing'"):
        reached.shell.find("nothing")
