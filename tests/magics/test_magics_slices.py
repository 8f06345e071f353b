"""The subcommands about the machines of slices, and what is in another zone than the connection's."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from multislice_nb import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import TypeAlias

    from IPython.core.interactiveshell import InteractiveShell

    Run: TypeAlias = Callable[[str], Any]

FAR = "europe-west4-b"


@pytest.fixture(scope="module")
def one(emulator_home: Path, run: Run) -> Iterator[str]:
    """The name of a single slice."""
    run("%multislice connect --emulator")
    run("%multislice create one --accelerator-type v4-8 --idle-limit 1h --wait")
    yield "one"
    run("%multislice delete one")


def test_what_another_zone_granted_is_found_by_its_name(
    emulator_home: Path, run: Run, shell: InteractiveShell
) -> None:
    """After `create --zones` its winner is waited for, reached, offered by Tab and deleted without `--zone`."""
    run("%multislice connect --emulator")
    made = run(f"%multislice create far --accelerator-type v5litepod-4 --zones {FAR}")
    assert made.zone == FAR
    assert run("%multislice wait far").status.is_active
    for form in (repr(run("%multislice status")), run("%multislice status")._repr_html_()):
        assert f"In other zones: far in {FAR}." in form
    run("%multislice sh --cluster far -o said hostname")
    assert len(shell.user_ns["said"].stdout) == 1
    assert "far" in shell.complete("%multislice delete f")[1]
    assert "v5litepod-4" in repr(run("%multislice describe far"))
    assert repr(run("%multislice delete far")).startswith("far deleted")
    with pytest.raises(errors.NotFoundError):
        run("%multislice describe far")


def test_nodes_are_listed(one: str, run: Run) -> None:
    """`nodes` shows the slices of a zone in both forms, with the queued resource of each."""
    listed = run("%multislice nodes")
    for form in (repr(listed), listed._repr_html_()):
        assert "v4-8" in form
        assert one in form
    assert repr(run(f"%multislice nodes --zone {FAR}")) == "No slices."


def test_somebody_else_may_log_in(one: str, run: Run, tmp_path: Path) -> None:
    """`authorize-ssh` adds the key in a file to every node; a private key is refused before anything is sent."""
    key = tmp_path / "alice.pub"
    key.write_text("ssh-ed25519 AAAAC3Nz alice@home\n")
    assert "alice may log in" in repr(run(f"%multislice authorize-ssh {one} alice {key}"))
    (node,) = run(f"%multislice describe {one}").nodes
    assert "alice:ssh-ed25519 AAAAC3Nz alice@home" in node.metadata["ssh-keys"]
    key.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nsecret\n")
    with pytest.raises(errors.InvalidRequestError, match="a private key") as caught:
        run(f"%multislice authorize-ssh {one} alice {key}")
    assert "secret" not in str(caught.value)
    with pytest.raises(errors.InvalidRequestError, match="no name of a user"):
        run(f"%multislice authorize-ssh {one} alice:root {key}")
    with pytest.raises(errors.MagicError, match="cannot be read"):
        run(f"%multislice authorize-ssh {one} alice {tmp_path / 'nothing.pub'}")


def test_what_workers_publish_is_shown(one: str, run: Run) -> None:
    """`guest-attributes` shows the host keys, or whatever else is asked for."""
    assert "hostkeys/ssh-ed25519" in repr(run(f"%multislice guest-attributes {one}"))
    assert "published none" in repr(run(f"%multislice guest-attributes {one} --query-path nothing/"))


def test_maintenance_is_told_and_performed(one: str, run: Run) -> None:
    """`maintenance` says what is coming; with `--perform` it is done now, on slices that exist."""
    assert repr(run(f"%multislice maintenance {one}")) == f"No maintenance is announced for {one}."
    assert repr(run(f"%multislice maintenance {one} --perform")) == f"No slice of {one} needs it."
    with pytest.raises(errors.MagicError, match="without --perform"):
        run(f"%multislice maintenance {one} --node-names {one}")
    with pytest.raises(errors.InvalidRequestError, match="no slice nothing"):
        run(f"%multislice maintenance {one} --perform --node-names nothing")
    done = repr(run(f"%multislice maintenance {one} --perform --node-names {one}"))
    assert done == f"Maintenance was done on {one}."


def test_touching_begins_the_idle_time_anew(one: str, run: Run) -> None:
    """`touch` moves the moment from which the idle limit counts."""
    cloud = run("%multislice connect --emulator")

    def used_at() -> float:
        return float(cloud.ledger.find(cloud.project, cloud.zone, one).used_at)

    before = used_at()
    run(f"%multislice touch {one}")
    assert used_at() > before


def test_watching_ends_when_it_is_gone(one: str, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """`watch` says each state once and returns when the queued resource is gone."""
    made = run("%multislice create passing --accelerator-type v4-8 --wait")
    watchers = made.cloud.tower(made.zone)._watchers

    def delete() -> None:
        while not watchers.get("passing"):
            time.sleep(0.01)
        made.delete()

    thread = threading.Thread(target=delete)
    thread.start()
    assert repr(run("%multislice watch passing")) == "passing is gone."
    thread.join()
    assert "passing ACTIVE" in capsys.readouterr().out


def test_several_clusters_are_used_by_name(
    attached: str, one: str, run: Run, shell: InteractiveShell
) -> None:
    """Cells run on the cluster attached or chosen last, or on the one they name; status and Tab know all of them."""
    run(f"%multislice attach {one}")
    try:
        assert run("%multislice status").clusters[0].name == one
        run("%%multislice -o here\n1")
        run(f"%%multislice --cluster {attached} -o there\n1")
        run(f"%multislice use {attached}")
        run("%%multislice -o chosen\n1")
        found = [len(shell.user_ns[name].values) for name in ("here", "there", "chosen")]
        assert found == [1, 4, 4]
        status = run("%multislice status")
        assert [cluster.name for cluster in status.clusters[:2]] == [attached, one]
        assert f"→ {attached}: " in repr(status)
        assert {attached, one} <= set(shell.complete("%multislice use ")[1])
        with pytest.raises(errors.ClusterError, match=f"Attached: {attached}, {one}"):
            run("%multislice use nobody")
    finally:
        run(f"%multislice detach {one} --shutdown")
