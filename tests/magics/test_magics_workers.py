from __future__ import annotations

import re
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from multislice_nb import errors

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import TypeAlias

    from IPython.core.interactiveshell import InteractiveShell

    Run: TypeAlias = Callable[[str], Any]


def test_a_refused_deletion_takes_nothing(attached: str, run: Run) -> None:
    """Who is attached stays so when `delete` is refused."""
    with pytest.raises(errors.FailedPreconditionError):
        run(f"%multislice delete {attached} --no-force")
    assert [cluster.name for cluster in run("%multislice status").clusters] == [attached]
    run("%%multislice\n1")


def test_a_command_runs_on_every_worker(
    attached: str, run: Run, shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    """`sh` shows equal output once, takes the shell's own notation, and keeps results by name."""
    run("%multislice sh echo 'a  b' | tr a-z A-Z")
    assert "[all 4] A  B" in capsys.readouterr().out
    run("%multislice sh --slices 1 --env WHO=me -o kept echo $WHO-$MULTISLICE_NB_RANK")
    assert shell.user_ns["kept"].stdout == ["me-2\n", "me-3\n"]
    assert capsys.readouterr().out == ""


def test_a_failure_names_the_notebooks_own_cell(attached: str, run: Run, shell: InteractiveShell) -> None:
    """A worker's traceback counts cells as the notebook does, so that the one to mend is found by its number."""
    done = shell.run_cell("%%multislice\n1 / 0", store_history=True)
    assert isinstance(done.error_in_exec, errors.WorkerError)
    told = "\n".join(done.error_in_exec._render_traceback_())
    assert f'"<cell {done.execution_count}>", line 1' in told


def test_variables_of_the_notebook_are_defined_on_all_workers(
    attached: str, run: Run, shell: InteractiveShell
) -> None:
    """Numbers and arrays travel, JAX arrays as numpy's; and a name that only the notebook knows is told so."""
    run("import jax.numpy as jnp, numpy as np\nsteps, table = 7, {'a': jnp.arange(3)}")
    with pytest.raises(errors.WorkerError, match="%multislice define steps sends it to the workers"):
        run("%%multislice\nsteps + 1")
    assert str(run("%multislice define steps table")) == "steps, table are defined on 4 workers."
    run("%%multislice -o there\n(steps, type(table['a']).__module__, int(table['a'].sum()))")
    assert shell.user_ns["there"].values == [(7, "numpy", 3)] * 4


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("stepz", "Did you mean steps?"),
        ("halve", "the function halve is this notebook's own"),
        ("lock", "lock cannot be sent to the workers"),
    ],
)
def test_what_cannot_be_defined_is_told_and_nothing_is_sent(
    attached: str, run: Run, name: str, told: str
) -> None:
    """A name that is not there, a function of the notebook's, an object of this process."""
    run("import threading\nsteps, unsent, lock = 7, 1, threading.Lock()\nhalve = lambda x: x / 2")
    run("halve.__module__, halve.__qualname__ = '__main__', 'halve'  # as in a kernel")
    with pytest.raises(errors.InvalidRequestError, match=told):
        run(f"%multislice define unsent {name}")
    with pytest.raises(errors.WorkerError, match="name 'unsent' is not defined"):
        run("%%multislice\nunsent")


def test_a_module_and_a_function_are_no_variables_to_send(attached: str, run: Run) -> None:
    """What is told of a name fits what it is here."""
    run("import colorsys\ndef mine(): pass\nmine.__module__ = '__main__'")
    with pytest.raises(errors.WorkerError, match="import it on the workers too"):
        run("%%multislice\ncolorsys.rgb_to_hls(0, 0, 0)")
    with pytest.raises(errors.WorkerError, match="run the cell that makes it with %%multislice"):
        run("%%multislice\nmine()")


def test_a_cell_is_a_script(attached: str, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """In `%%multislice sh` nothing is replaced here, and a failure anywhere fails the cell."""
    run("name = 'here'")
    with pytest.raises(errors.WorkerError, match="rank 3"):
        run(
            "%%multislice sh\nname=there\nfor i in 1 2; do echo ${name} $i; done\n"
            'if [ "$MULTISLICE_NB_RANK" = 3 ]; then exit 4; fi'
        )
    assert "there 2" in capsys.readouterr().out


def test_a_detached_command_is_listed_shown_and_stopped(
    attached: str, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """What `sh --detach` starts goes on by itself; ps, logs and stop find it by its name."""
    note = repr(run("%multislice sh --detach --name nap echo begun; sleep 600"))
    assert "nap runs on 4 workers of pair" in note
    listed = run("%multislice ps")
    for form in (repr(listed), listed._repr_html_()):
        assert "nap" in form
        assert "all 4: running" in form
    shown, end = "", time.monotonic() + 20
    while "begun" not in shown:
        assert time.monotonic() < end, "it did not print in time"
        run("%multislice logs nap")
        shown = capsys.readouterr().out
    assert str(run("%multislice stop nap --grace 1")).startswith("nap: all 4: killed by")
    with pytest.raises(errors.MagicError, match="--folder says nothing"):
        run("%multislice sh --folder . ls")


def test_a_detached_command_can_be_followed(
    attached: str, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """`logs --follow` waits for the end and shows all of it."""
    identity = re.findall(r"logs (\w+)", repr(run("%multislice sh -d echo one; sleep 0.3; echo two")))[0]
    run(f"%multislice logs --follow {identity}")
    assert "two" in capsys.readouterr().out


def test_workers_are_reached_without_being_attached(attached: str, run: Run, tmp_path: Path) -> None:
    """Files and commands need SSH alone: `--cluster` may name a queued resource that runs no engines."""
    (tmp_path / "data.txt").write_text("42")
    run("%multislice create bare --accelerator-type v4-8 --wait")
    try:
        run(f"%multislice push {tmp_path / 'data.txt'} --cluster bare")
        run("%multislice sh --cluster bare -o said cat data.txt")
        assert run("said.stdout") == ["42"]
        assert "rank 0" in str(run("%multislice environment --cluster bare"))
    finally:
        run("%multislice delete bare")


def test_a_cell_can_be_left_running(attached: str, run: Run, shell: InteractiveShell) -> None:
    """`--noblock` gives a handle at once; its result comes when the cell has ended."""
    handle = run("%%multislice --noblock\nimport time\ntime.sleep(0.2)\n6 * 7")
    assert handle.result(timeout=30).values == [42] * 4
    assert "ended" in str(handle)
    run("%%multislice --noblock --ranks 1,2 -o later\n'late'")
    assert shell.user_ns["later"].result(timeout=30).values == ["late"] * 2


def test_a_failure_can_be_looked_at(
    attached: str, run: Run, shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--no-raise` shows a failure, or keeps it in the result, and the notebook goes on."""
    cell = "import os\nassert os.environ['MULTISLICE_NB_RANK'] != '2', 'bad shard'"
    run(f"%%multislice --no-raise\n{cell}")
    assert "WorkerError: AssertionError on rank 2 (slice 1, worker 0): bad shard" in capsys.readouterr().out
    run(f"%%multislice --no-raise -o kept\n{cell}")
    assert [error is None for error in shell.user_ns["kept"].errors] == [True, True, False, True]
    assert capsys.readouterr().out == ""
    with pytest.raises(errors.MagicError, match="--noblock"):
        run("%%multislice --no-raise --noblock\n1")


def test_a_cell_can_run_here_too(attached: str, run: Run, shell: InteractiveShell) -> None:
    """`--local` runs the cell here first, and on the workers only if it did well."""
    run("%%multislice --local -o both\nshared = 'both'\nshared")
    assert shell.user_ns["shared"] == "both"
    assert shell.user_ns["both"].values == ["both"] * 4
    with pytest.raises(errors.MagicError, match="failed here: ZeroDivisionError"):
        run("%%multislice --local\nshared = 'nowhere'\n1 / 0")
    run("%%multislice -o kept\nshared")
    assert shell.user_ns["kept"].values == ["both"] * 4


def test_what_was_left_running_is_announced_and_collected(
    attached: str, run: Run, shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    """After detaching from a running cell, attach says that it is there, and collect gets its end."""
    run("%%multislice --noblock -o left\nimport time\ntime.sleep(1)\nprint('done meanwhile')\n'value'")
    run(
        "%multislice sh --timeout 30 until ls ~/.multislice_nb/clusters/pair/cells/*/cell.json; do sleep 0.1; done"
    )
    run("%multislice detach")
    capsys.readouterr()
    run("%multislice attach pair")
    assert "%multislice collect shows it" in capsys.readouterr().out
    run("%multislice collect -o got")
    assert shell.user_ns["got"].values == ["value"] * 4
    assert shell.user_ns["got"].stdout == ["done meanwhile\n"] * 4


def test_variables_are_set_on_the_workers(attached: str, run: Run, shell: InteractiveShell) -> None:
    """Engines and commands see what `environment set` sets; values are shown on request alone."""
    assert "Set on all workers: COLOUR" in repr(run("%multislice environment set COLOUR=blue"))
    run("%%multislice -o seen\nimport os\nos.environ['COLOUR']")
    assert shell.user_ns["seen"].values == ["blue"] * 4
    assert "blue" not in repr(run("%multislice environment variables"))
    assert "[all 4]\nCOLOUR=blue" in repr(run("%multislice environment variables --values"))
    assert "jax" in str(run("%multislice environment"))
    assert "memory" in str(run("%multislice environment usage"))
    run("%multislice environment clean")


def test_a_cell_is_profiled(
    attached: str, run: Run, shell: InteractiveShell, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--profile` shows where the time of each worker went and how to open the traces; a folder alone is refused."""
    work = "import jax, jax.numpy as jnp\nx = jax.block_until_ready(jnp.ones((64, 64)) @ jnp.ones((64, 64)))"
    run(f"%%multislice --profile --profile-folder {tmp_path}\n{work}")
    printed = capsys.readouterr().out
    assert f"xprof --logdir={tmp_path}" in printed
    for host in ("slice_000_worker_000", "slice_001_worker_001"):
        assert host in printed
    run(f"%%multislice --profile --profile-folder {tmp_path} -o kept\nimport jax")
    profile = shell.user_ns["kept"].profile
    assert len(profile.hosts) == 4
    assert "No device ran anything" in str(profile)
    assert capsys.readouterr().out == ""
    with pytest.raises(errors.MagicError, match="without --profile"):
        run("%%multislice --profile-folder here\n1")


def test_patience_is_asked_for_at_attach(attached: str, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """`--recover` over a whole gang attaches to it; a notice of silence is printed once where nobody watches."""
    run("%%multislice\nkept = 'there'")
    run("%multislice attach pair --recover --silence 1")
    capsys.readouterr()
    run("%%multislice\nimport time\ntime.sleep(2.5)\nkept")
    shown = capsys.readouterr().out
    assert shown.count("No worker has printed or ended since") == 1
    assert "at line 2" in shown
    assert "[all 4] 'there'" in shown
    with pytest.raises(errors.MagicError, match="how long --recover waits"):
        run("%multislice attach pair --repair-deadline 5")
    run("%multislice attach pair")


def test_a_table_is_shown_as_one(
    attached: str, run: Run, shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a kernel a value with HTML or a picture is shown so, once; values that look otherwise stay as text."""
    from IPython.utils.capture import capture_output

    kernel = SimpleNamespace(get_parent=lambda *_: {})
    monkeypatch.setattr(shell, "kernel", kernel, raising=False)
    cell = "%%multislice\nimport jax, pandas as pd\nleft = jax.process_index() < {}\npd.DataFrame({{'a': [1]}}) if left else 7"
    with capture_output() as shown:
        run(cell.format(4))
    assert shown.stdout == ""
    assert "<table" in shown.outputs[-1].data["text/html"]
    with capture_output() as shown:
        run(cell.format(2))
    assert "[ranks 2-3] 7" in shown.stdout
    assert "Shown: the value of rank 0" in shown.stdout
    assert "<table" in shown.outputs[-1].data["text/html"]
