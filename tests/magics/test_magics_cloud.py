from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from multislice_nb import errors
from multislice_nb.cluster import registry
from multislice_nb.magics.cells import CellInterrupted
from multislice_nb.widgets.session import Session, current

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import TypeAlias

    from IPython.core.interactiveshell import InteractiveShell

    from multislice_nb.cloud import QueuedResource
    from multislice_nb.cluster import Cluster

    Run: TypeAlias = Callable[[str], Any]

COMMAND = r"""
export ZONE_OF_MINE=us-central2-b
$ gcloud compute tpus queued-resources create $NAME_OF_MINE \
    --node-count=2 \
    --zone=${ZONE_OF_MINE} \
    --accelerator-type=v4-8 \
    --runtime-version=tpu-ubuntu2204-base \
    [--labels=team=a]
"""


FLAGS = (
    "%multislice create pasted --accelerator-type v4-8 --node-count 2 --zone us-central2-b "
    "--runtime-version tpu-ubuntu2204-base --dry-run"
)


@pytest.fixture(scope="module")
def connected(emulator_home: Path, run: Run) -> Iterator[Run]:
    """A shell that is connected to the emulator, whose queued resources are gone afterwards."""
    run("%multislice connect --emulator")
    yield run
    left = [name for name in run("%multislice list").names if name != "pair"]
    if left:
        run(f"%multislice delete {' '.join(left)}")


@pytest.mark.parametrize(
    "cell",
    [
        "%multislice create --dry-run " + COMMAND.split("$ ")[1].strip().split(" \\\n    [")[0],
        f"%%multislice create --dry-run\n{COMMAND}",
        "%%multislice create pasted --dry-run\n" + "{body_text}",
        "%multislice create --dry-run pasted --from-rest body",
        "%multislice create pasted --from-rest {body_file} --dry-run",
        FLAGS,
    ],
    ids=["line", "cell", "json", "variable", "file", "flags"],
)
def test_all_notations_ask_for_the_same(
    connected: Run, shell: InteractiveShell, tmp_path: Path, cell: str
) -> None:
    """Flags, a pasted gcloud command and a REST body, wherever it comes from, are one request."""
    spec = {
        "parent": "projects/emulated-project/locations/us-central2-b",
        "multiNodeParams": {"nodeCount": 2, "nodeIdPrefix": "pasted"},
        "node": {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base"},
    }
    body = {"tpu": {"nodeSpec": [spec]}}
    (tmp_path / "body.json").write_text(json.dumps(body))
    shell.user_ns |= {"NAME_OF_MINE": "pasted", "body": body, "ZONE_OF_MINE": "us-central2-b"}
    cell = cell.replace("{body_text}", json.dumps(body, indent=1))
    shown = repr(connected(cell.replace("{body_file}", str(tmp_path / "body.json"))))
    assert shown.startswith("pasted   2 x v4-8 · 8 chips · 2 workers · on-demand · us-central2-b")
    assert "--node-count=2" in shown
    assert "pasted" not in connected("%multislice list").names


def test_a_pasted_command_is_carried_out(connected: Run, shell: InteractiveShell) -> None:
    """The cell below `create` is sent, waited for, and known from then on."""
    shell.user_ns["NAME_OF_MINE"] = "carried"
    made = connected(f"%%multislice create --wait --ttl 1h\n{COMMAND}")
    assert made.status.state == "ACTIVE"
    assert made.status.node_count == 2
    timeline = connected("%multislice timeline carried")
    for form in (repr(timeline), timeline._repr_html_()):
        assert form.index("PROVISIONING") < form.index("ACTIVE")
    assert "chip-hours" in repr(timeline)
    again = connected("%multislice recreate carried --wait")
    assert again.status.is_active
    assert again.status.create_time > made.status.create_time


def attached_to(made: QueuedResource) -> list[str]:
    """Pretend to be attached to a queued resource; gets its name when it is let go."""
    let_go = []

    async def adetach() -> None:
        let_go.append(made.name)
        registry.remove(cluster)

    cluster = cast("Cluster", SimpleNamespace(name=made.name, queued_resource=made, adetach=adetach))
    registry.add(cluster)
    return let_go


def test_the_first_with_capacity_is_kept(connected: Run) -> None:
    """With `--capacities` one of the requests is kept and the others are gone."""
    made = connected("%multislice create any --accelerator-type v4-8 --capacities on-demand,spot --wait")
    assert made.status.is_active
    assert [name for name in connected("%multislice list").names if name.startswith("any")] == [made.name]
    let_go = attached_to(made)
    replaced = connected(f"%multislice create {made.name} --accelerator-type v4-16 --recreate")
    assert replaced.status.accelerator_type == "v4-16"
    assert let_go == [made.name]


@pytest.mark.parametrize("flag", ["--in-order", "--race", "--capacity-timeout 1h"])
@pytest.mark.parametrize("more", ["", "--recreate", "--dry-run"])
def test_a_choice_needs_places(connected: Run, flag: str, more: str) -> None:
    """How to choose is refused where there is nothing to choose from, instead of ignored."""
    with pytest.raises(errors.MagicError, match=f"{flag.split(maxsplit=1)[0]} needs places"):
        connected(f"%multislice create none --accelerator-type v4-8 {flag} {more}")


def test_a_request_leaves_the_notebook_where_it_is_connected(
    connected: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The emulator stands for the project that a request names; on Google Cloud another project is refused."""
    pasted = (
        "gcloud compute tpus queued-resources create theirs --project=your-project --accelerator-type=v4-8"
    )
    for line in (
        f"create --dry-run {pasted}",
        "create x --project your-project --accelerator-type v4-8 --dry-run",
    ):
        assert "--project=emulated-project" in repr(connected(f"%multislice {line}"))
        assert "your-project included" in capsys.readouterr().out
    mine: Any = SimpleNamespace(closed=False, is_emulator=False, project="mine", zone="us-central2-b")
    monkeypatch.setattr(current(), "_cloud", mine)
    with pytest.raises(errors.MagicError, match="connected to project mine, and this asks in project your"):
        connected(f"%multislice create {pasted}")
    assert current().cloud is mine


def test_the_first_request_brings_its_zone(connected: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no connection yet, one is made to the project and the zone that the request names."""
    asked = []

    def connect(_: Session, *where: str | None) -> Any:
        asked.append(where)
        return SimpleNamespace(is_emulator=False, project="theirs", zone="us-east1-d")

    monkeypatch.setattr(current(), "_cloud", None)
    monkeypatch.setattr(Session, "connect", connect)
    connected("%multislice create x --project theirs --zone us-east1-d --accelerator-type v4-8 --dry-run")
    assert asked == [("theirs", "us-east1-d")]


def test_of_several_deletions_each_end_is_told(
    connected: Run, fault: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    """What could be deleted is said and forgotten, what could not is raised, all of it."""
    connected("%multislice create held --accelerator-type v4-8 --wait")
    connected("%multislice create kept --accelerator-type v4-8 --wait")
    fault("stock-out", generation="v4")
    connected("%multislice create waiting --accelerator-type v4-8")
    with pytest.raises(errors.CloudError, match="2 could not be deleted") as caught:
        connected("%multislice delete held waiting kept --no-force")
    assert all(name in str(caught.value) for name in ("held", "kept"))
    assert "\nwaiting deleted" in capsys.readouterr().out
    assert {"held", "kept"} <= set(connected("%multislice list").names)
    assert "waiting" not in connected("%multislice list").names


def test_an_interrupt_says_what_is_left(
    connected: Run, shell: InteractiveShell, fault: Callable[..., None]
) -> None:
    """An interrupted line ends in a sentence and no traceback, and takes back what only it was waiting for."""
    fault("stock-out", generation="v4")
    cloud = current().connected()

    def interrupt() -> None:
        while "nowhere" not in cloud.list().names:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    line = "%multislice create nowhere --accelerator-type v4-8 --zones us-central2-b --capacity-timeout 1h"
    done = shell.run_cell(line)
    thread.join()
    assert isinstance(done.error_in_exec, CellInterrupted)
    (told,) = done.error_in_exec._render_traceback_()
    assert told == ("Interrupted: what was asked for by then may be there still: %multislice list shows it.")
    assert "nowhere" not in cloud.list().names


def test_two_requests_are_refused(connected: Run, shell: InteractiveShell) -> None:
    """What is pasted and what is named cannot both be meant, nor can a number be a body."""
    with pytest.raises(errors.MagicError, match="two requests"):
        connected(f"%%multislice create --from-rest body\n{COMMAND}")
    shell.user_ns["count"] = 2
    with pytest.raises(errors.MagicError, match="The variable count holds no body"):
        connected("%multislice create x --from-rest count")


def test_the_doctor_reports(connected: Run) -> None:
    """Every precondition is checked; on the emulator none fails."""
    report = connected("%multislice doctor --accelerator-type v4-8")
    assert report.ok
    assert "✓" in str(report)


def test_reclaiming_deletes_only_with_yes(connected: Run, fault: Callable[..., None]) -> None:
    """Looking deletes nothing, what is named must be among what was found, and --yes deletes it."""
    fault("fail-creation", node_id="broken")
    let_go = attached_to(connected("%multislice create broken --accelerator-type v4-8"))
    with pytest.raises(errors.QueuedResourceFailedError):
        connected("%multislice wait broken")
    assert connected("%multislice reclaim").names == ("broken",)
    with pytest.raises(errors.MagicError, match="nobody is not among"):
        connected("%multislice reclaim --yes nobody")
    assert "broken" in connected("%multislice list").names
    assert let_go == []
    assert repr(connected("%multislice reclaim --yes broken")) == "Deleted: broken."
    assert let_go == ["broken"]
    assert "broken" not in connected("%multislice list").names


def test_settings_are_configured_by_config(connected: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """`%config Multislice` shows the settings, and what is set there counts for the next request."""
    connected("%config Multislice")
    assert "Multislice.accelerator_type=<Unicode>" in capsys.readouterr().out
    connected("%config Multislice.accelerator_type = 'v4-32'")
    try:
        assert "v4-32" in repr(connected("%multislice create by-config --dry-run"))
    finally:
        connected("%config Multislice.accelerator_type = None")


def test_connecting_tells_what_was_left(
    connected: Run, emulator_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a notebook left that is gone now is named by the next `connect`, and found by reclaim."""
    code = (
        "import os, signal, multislice_nb as ms\n"
        "ms.connect(emulator=True).create('left', accelerator_type='v4-8').wait()\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    environment = {**os.environ, "MULTISLICE_NB_HOME": str(emulator_home)}
    subprocess.run([sys.executable, "-c", code], env=environment, timeout=60, check=False)
    capsys.readouterr()
    connected("%multislice connect --emulator")
    assert "Note: Left by notebooks that are gone: left (4 chips)" in capsys.readouterr().out
    assert repr(connected("%multislice reclaim --yes left")) == "Deleted: left."


def test_a_line_sees_the_variables_of_its_function(connected: Run) -> None:
    """`$name` in a line means the variable of the function that the line is in."""
    connected("word = 'delete'")
    found = connected(
        "def ask(word):\n    return get_ipython().run_line_magic('multislice', '$word --help')\nask('list')"
    )
    assert "Usage: %multislice list" in found
