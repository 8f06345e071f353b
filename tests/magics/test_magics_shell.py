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


def test_a_cell_runs_on_every_worker(attached: str, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """What all workers printed alike is shown once, what differs with its ranks, and values are folded."""
    run("%%multislice\nimport jax\nprint('devices', jax.device_count())\njax.local_devices()[0].slice_index")
    shown = capsys.readouterr().out
    assert shown.count("devices 16") == 1
    assert "[ranks 0-1] 0" in shown
    assert "[ranks 2-3] 1" in shown


def test_a_named_result_is_stored_and_not_shown(
    attached: str, run: Run, shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    """`-o name` keeps the result in that variable and displays nothing."""
    assert run("%%multislice -o kept\nprint('loud')\n7 * 6") is None
    assert capsys.readouterr().out == ""
    assert shell.user_ns["kept"].values == [42] * 4
    assert shell.user_ns["kept"].stdout == ["loud\n"] * 4


def test_the_body_is_never_expanded(attached: str, run: Run, shell: InteractiveShell) -> None:
    """`$name` and `{name}` mean a variable in the line and themselves in the cell."""
    run("name, chosen = 'expanded', '1,3'")
    run("%%multislice --ranks $chosen -o got\nname = 'on the worker'\nf'{name} $name'")
    assert shell.user_ns["got"].values == ["on the worker $name"] * 2


def test_a_failing_cell_raises_and_keeps_what_was_printed(
    attached: str, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first failure is raised as a WorkerError after the output of all workers was shown."""
    with pytest.raises(errors.WorkerError, match="ValueError on rank 2"):
        run(
            "%%multislice\nimport jax\nprint('before')\n"
            "if jax.process_index() == 2: raise ValueError('bad shard')"
        )
    shown = capsys.readouterr().out
    assert "before" in shown
    assert "bad shard" in shown
    assert "magics.py" not in shown, "our own code is not what the user wants to see"


def test_a_figure_of_a_worker_is_shown_once(
    attached: str, run: Run, shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rich display of four workers appears once, and what could reach into the page's own kernel is left out."""
    published: list[dict[str, Any]] = []
    monkeypatch.setattr(shell.display_pub, "publish", lambda data, **_: published.append(data))
    run(
        "%%multislice\nfrom IPython.display import display\n"
        "display({'text/html': '<b>x</b>', 'application/javascript': 'alert(1)', 'text/plain': 'x'}, raw=True)"
    )
    assert published == [{"text/html": "<b>x</b>", "text/plain": "x"}]


def test_outputs_can_be_grouped_by_worker(
    attached: str, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --group-outputs=engine everything of a worker stands together."""
    run("%%multislice --group-outputs engine\nprint('same')\n1")
    shown = capsys.readouterr().out
    assert shown.count("same") == 4
    assert "── rank 3 (slice 1, worker 1)\nsame\n1" in shown


def test_settings_give_the_defaults(attached: str, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """`%config MultisliceMagics` sets what a cell does without flags."""
    run("%config MultisliceMagics.group_outputs = 'engine'")
    try:
        run("%%multislice\nprint('same')")
    finally:
        run("%config MultisliceMagics.group_outputs = 'type'")
    assert capsys.readouterr().out.count("same") == 4


def test_status_and_describe_show_what_there_is(attached: str, run: Run) -> None:
    """Status names connection, queued resources and clusters; describe the timeline and the slices."""
    status = run("%multislice")
    for form in (repr(status), status._repr_html_()):
        assert "emulator" in form
        assert "pair" in form
        assert "4 of 4 workers ready" in form
    described = repr(run("%multislice describe pair"))
    assert "PROVISIONING" in described
    assert "pair-1 (slice 1) v4-16 READY" in described


def test_a_clusters_life(attached: str, run: Run, shell: InteractiveShell) -> None:
    """Restart forgets variables, detach keeps them, and a cell without a cluster says how to get one."""
    run("%%multislice\nkept = 5")
    note = run("%multislice detach")
    assert "%multislice attach pair" in repr(note)
    with pytest.raises(errors.ClusterError, match="No cluster is attached"):
        run("%%multislice\n1")
    run("%multislice attach pair")
    run("%%multislice -o again\nkept")
    assert shell.user_ns["again"].values == [5] * 4
    run("%multislice restart")
    run("%%multislice -o gone\n'kept' in globals()")
    assert shell.user_ns["gone"].values == [False] * 4


def test_nothing_is_sent_by_a_dry_run(attached: str, run: Run) -> None:
    """`create --dry-run` shows the request and gcloud's command for it, and creates nothing."""
    shown = repr(run("%multislice create tried --accelerator-type v4-8 --spot --dry-run"))
    assert "gcloud compute tpus queued-resources create tried" in shown
    assert "tried" not in run("%multislice list").names


def test_a_bad_request_is_refused_whole(attached: str, run: Run) -> None:
    """The errors of the rooms below come through as they are, with their own class."""
    with pytest.raises(errors.AcceleratorTypeError, match="v4-18 is not a v4 slice"):
        run("%multislice create big --accelerator-type v4-18 --node-count 2")
    with pytest.raises(errors.NotFoundError):
        run("%multislice describe nothing")


def test_progress_is_a_line_for_each_state(
    attached: str, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where nobody watches, waiting prints each state once."""
    run("single = %multislice create single --accelerator-type v4-8 --wait")
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["single WAITING_FOR_RESOURCES", "single PROVISIONING", "single ACTIVE"]
    farewell = repr(run("%multislice delete $single.name"))
    assert farewell.startswith("single deleted · 1 worker, 4 chips released")
    run("%multislice create later --accelerator-type v4-8 --valid-after-duration 1h")
    assert repr(run("%multislice delete later")) == "later deleted"


def test_files_travel_both_ways(attached: str, run: Run, shell: InteractiveShell, tmp_path: Path) -> None:
    """What is pushed is on every worker, and what is pulled comes into a folder for each."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "there.txt").write_text("came along")
    run(f"%multislice push {tmp_path / 'code'}")
    run("%%multislice -o read\nfrom pathlib import Path\n(Path.home() / 'code' / 'there.txt').read_text()")
    assert shell.user_ns["read"].values == ["came along"] * 4
    run(f"%multislice pull code/there.txt {tmp_path / 'back'} --ranks 1,2")
    assert len(list((tmp_path / "back").glob("*/**/there.txt"))) == 2


def test_autocell_sends_every_cell_until_it_is_off(
    attached: str, run: Run, shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    """While it is on, cells run on the workers under a banner, --local runs them here too, and off ends it."""
    assert "AUTOCELL" in repr(run("%multislice autocell on"))
    capsys.readouterr()
    try:
        run("where = 'there'\nprint('said', where)")
        shown = capsys.readouterr().out
        assert shown.startswith("▶ AUTOCELL: on 4 workers of pair")
        assert "[all 4] said there" in shown
        assert "where" not in shell.user_ns
        run("%%multislice --local -o both\nplaces = globals().get('places', []) + ['once']\nlen(places)")
        assert shell.user_ns["both"].values == [1] * 4
        assert shell.user_ns["places"] == ["once"]
    finally:
        run("%multislice autocell off")
    run("where = 'here'")
    assert shell.user_ns["where"] == "here"


def test_slices_can_be_chosen(attached: str, run: Run, shell: InteractiveShell) -> None:
    """`--slices` and `--workers` name workers by where they are."""
    run("%%multislice --slices 1 --workers 0 -o one\nimport jax\njax.process_index()")
    assert shell.user_ns["one"].values == [2]


def test_advice_and_housekeeping_come_as_objects(attached: str, run: Run) -> None:
    """recommend, reclaim and jobs return objects with text forms, and reclaim deletes nothing unasked."""
    advice = run(
        "%multislice recommend --accelerator-type v4-128 --slices 2 --parameters 8e9 --tokens-per-slice 350000"
    )
    assert "FLOPs" in str(advice)
    assert "pair" not in run("%multislice reclaim").names
    assert str(run("%multislice job list")) == "No jobs."
    assert "pair" in run("%multislice list").names
