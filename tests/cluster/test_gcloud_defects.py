"""Nine things that gcloud's TPU commands are known to do wrong, done right."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import multislice_nb as ms
from multislice_nb import errors
from multislice_nb.cloud.wire import to_json
from multislice_nb.cluster.inventory import workers_of
from multislice_nb.cluster.shell import Shell

if TYPE_CHECKING:
    from pathlib import Path

    from multislice_nb.cluster.reaching import Reach


def test_1_a_slice_that_cannot_be_used_is_an_error(reached: Reach) -> None:
    """A stopped slice, or a worker that does not exist, is refused by name; gcloud skips it and exits with 0."""
    nodes = ms.connect().get(reached.site.name).nodes()
    stopped = [nodes[0], replace(nodes[1], state="STOPPED")]
    with pytest.raises(errors.ConnectError, match=r"Slice 1 \(hands-1\) is STOPPED"):
        workers_of(stopped, workers_per_slice=2, ssh=reached.site.ssh)
    with pytest.raises(errors.InvalidRequestError, match="no worker 5"):
        reached.shell.run("true", workers=5)


def test_2_no_exit_status_is_lost(reached: Reach) -> None:
    """A failing command on some worker of several slices fails; gcloud loses its status and exits with 0."""
    with pytest.raises(errors.WorkerError) as caught:
        reached.shell.run("exit 7", workers=1)
    assert caught.value.result is not None
    assert [(w.worker.rank, w.value) for w in caught.value.result.workers] == [(1, 7), (3, 7)]


def test_3_exit_status_255_is_the_commands_own(reached: Reach, homes: list[Path]) -> None:
    """A command that exits with 255 has run once; gcloud takes that for a lost connection and runs it ten times."""
    result = reached.shell.run("echo ran >> times; exit 255", ranks=0, check=False)
    assert result.exit_statuses == [255]
    assert (homes[0] / "times").read_text() == "ran\n"


def test_4_output_files_are_written_one_for_each_worker(reached: Reach, tmp_path: Path) -> None:
    """Each worker of each slice has a file of its own; gcloud writes to `None/0.log`, or nothing."""
    reached.shell.run("echo $MULTISLICE_NB_RANK", output_directory=tmp_path / "logs")
    written = {path.name: path.read_text() for path in (tmp_path / "logs").iterdir()}
    assert written == {f"slice_{s:03d}_worker_{w:03d}.log": f"{2 * s + w}\n" for s in (0, 1) for w in (0, 1)}


def test_5_output_and_failures_say_which_slice_and_worker(reached: Reach) -> None:
    """Every line can be told apart by rank, slice and worker; gcloud prints them bare."""
    result = reached.shell.run("echo $MULTISLICE_NB_RANK")
    assert "[rank 3 (slice 1, worker 1)] 3" in str(result)
    with pytest.raises(errors.WorkerError, match=r"rank 2 \(slice 1, worker 0\)"):
        reached.shell.run("exit $(( MULTISLICE_NB_RANK == 2 ))")


@pytest.mark.parametrize("reservation", [{"reserved": True}, {"reservation": "mine"}])
def test_6_a_reservation_is_named_with_its_zone(reservation: dict[str, object]) -> None:
    """The zone of the connection is in a reservation's name; gcloud writes `locations/None` for it."""
    cloud = ms.connect()
    body = to_json(cloud.request("r", accelerator_type="v4-16", node_count=2, **reservation))
    name = body["reservationName"]
    assert f"/locations/{cloud.zone}/reservations/" in name
    assert "None" not in name


def test_7_spot_is_nothing_but_spot() -> None:
    """A spot request says spot alone; gcloud's alpha track sends the provisioning model STANDARD beside it."""
    body = to_json(ms.connect().request("s", accelerator_type="v4-16", node_count=2, spot=True))
    assert body["spot"] == {}
    assert "STANDARD" not in str(body)
    assert not {"guaranteed", "reservationName"} & set(body)


@pytest.mark.parametrize("name", ["v4-16", "v5litepod-16", "v5p-16", "v6e-16"])
def test_8_every_generation_can_be_asked_for(name: str) -> None:
    """One word names any generation's slices; gcloud's --type stops at v4."""
    body = to_json(ms.connect().request("g", accelerator_type=name, node_count=2))
    assert name in str(body) or ms.tpu.AcceleratorType.parse(name).generation.api_type in str(body)


def test_9_what_help_says_is_filled_in_is(reached: Reach) -> None:
    """Each name that the help promises has the worker's own value; gcloud's help names %TPU%, which stays as it is."""
    promised = re.findall(r"MULTISLICE_NB_[A-Z_]+", str(Shell.__doc__))
    assert len(promised) == 4
    result = reached.shell.run("; ".join(f"echo ${name}" for name in promised), ranks=3)
    assert result.stdout[0].split() == ["3", "1", "1", "hands-1"]
