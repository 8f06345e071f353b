from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from multislice_nb import errors

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import TypeAlias

    from IPython.core.interactiveshell import InteractiveShell

    Run: TypeAlias = Callable[[str], Any]

WHERE = "--accelerator-type v4-8 --node-count 2"


@pytest.fixture
def store(emulator_home: Path, run: Run, tmp_path: Path) -> str:
    """The flag for a store of the test's own, in a connected shell."""
    run("%multislice connect --emulator")
    return f"--store {tmp_path / 'store'}"


def test_a_job_is_submitted_followed_and_removed(
    store: str, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From submit to results: each action of `job` on a job that runs on real workers."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "requirements.txt").write_text("")
    run(
        f"%%multislice job submit hello {WHERE} {store} --folder {tmp_path / 'code'} --max-restarts 0\n"
        'echo "said $MULTISLICE_NB_RANK"\necho kept > "$MULTISLICE_NB_RESULTS/kept.txt"'
    )
    assert [one.name for one in run(f"%multislice job list {store}")] == ["hello"]
    done = run(f"%multislice job wait hello --timeout 2m {store}")
    assert done.state == "succeeded"
    assert run(f"%multislice job status hello {store}").is_cleaned_up
    logged = repr(run(f"%multislice job logs hello --grep said {store}"))
    assert logged.count("said") == 2
    assert repr(run(f"%multislice job logs hello --errors {store}")) == "No errors."
    for flag in ("", "--errors"):
        shown = repr(run(f"%multislice job logs hello --grep nobody {flag} {store}"))
        assert shown == "No line matches 'nobody'."
    supervisors = repr(run(f"%multislice job logs hello --supervisor {store}"))
    assert "attempt 1: coordinator" in supervisors
    manifest = run(f"%multislice job jobset hello --image image:1 --accelerator-type tpu7x-32 {store}")
    assert manifest["kind"] == "JobSet"
    assert "cloud.google.com/gke-tpu-accelerator: tpu7x" in repr(manifest)
    run(f"%multislice job results hello {tmp_path / 'out'} {store}")
    assert len(list((tmp_path / "out").rglob("kept.txt"))) == 2
    run(f"%multislice job remove hello {store}")
    assert str(run(f"%multislice job list {store}")) == "No jobs."


def test_a_job_is_cancelled_and_tried_again(store: str, run: Run, tmp_path: Path) -> None:
    """`job cancel` ends it, `job retry` runs it anew as another run."""
    (tmp_path / "requirements.txt").write_text("")
    run(f"%multislice job submit again {WHERE} {store} --folder {tmp_path / '.'} sleep 600")
    run(f"%multislice job cancel again {store}")
    assert run(f"%multislice job wait again --timeout 2m {store}").state == "cancelled"
    run(f"%multislice job retry again --node-count 1 {store}")
    status = run(f"%multislice job status again {store}")
    assert (status.run, status.shape) == (2, "v4-8")
    run(f"%multislice job cancel again {store}")
    assert run(f"%multislice job wait again --timeout 2m {store}").is_cleaned_up


def test_cells_of_this_notebook_become_a_job(store: str, run: Run, shell: InteractiveShell) -> None:
    """`--cells` takes cells by their numbers, and --dry-run sends nothing."""
    shell.run_cell("%%multislice --help\nx = 1", store_history=True)
    number = len(shell.user_ns["In"]) - 1
    shown = run(f"%multislice job submit cells {WHERE} {store} --cells {number} --dry-run")
    assert "gcloud compute tpus queued-resources create cells" in str(shown)
    with pytest.raises(errors.InvalidRequestError, match="no parameter y"):
        run(f"%multislice job submit cells {WHERE} {store} --cells {number} -p y 3 --dry-run")
    with pytest.raises(errors.InvalidRequestError, match=r"No cell In\[999\]"):
        run(f"%multislice job submit cells {WHERE} {store} --cells 999 --dry-run")
    with pytest.raises(errors.MagicError, match="either a command or a notebook"):
        run(f"%multislice job submit cells {WHERE} {store} --cells {number} ls")
