"""The real gcloud drives the emulator as it drives the service."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from multislice_nb.emulator.client_environment import client_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.emulator.emulated_tpu import PARENT, Emulated

    Gcloud = Callable[..., subprocess.CompletedProcess[str]]
else:
    from emulated_tpu import PARENT, Emulated

pytestmark = pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not installed")


@pytest.fixture
def gcloud(emulated: Emulated, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gcloud]:
    """Run gcloud in the environment that `emulator env` prints, with a home folder of its own."""
    home = tmp_path_factory.mktemp("user")
    key = home / ".ssh" / "google_compute_engine"
    key.parent.mkdir(mode=0o700)
    subprocess.run(["ssh-keygen", "-q", "-t", "rsa", "-N", "", "-f", str(key)], check=True)
    environment = {
        **os.environ,
        **client_environment(emulated.address),
        "HOME": str(home),
        "PATH": f"{emulated.address.home / 'gcloud-bin'}:{os.environ['PATH']}",
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
    }

    def run(*args: str, status: int = 0, alpha: bool = False) -> subprocess.CompletedProcess[str]:
        argv = ["gcloud", *(["alpha"] if alpha else []), "compute", "tpus", *args]
        done = subprocess.run(argv, capture_output=True, text=True, env=environment, timeout=120, check=False)
        assert done.returncode == status, done.stdout + done.stderr
        return done

    # gcloud sleeps a second before it asks again for an operation that was not done at once.
    emulated.rest("POST", "/emulator/v1/clock", {"factor": 0})
    yield run
    emulated.rest("POST", "/emulator/v1/clock", {"factor": 1})


def _create(gcloud: Gcloud, name: str, *extra: str, alpha: bool = False) -> None:
    gcloud(
        *("queued-resources", "create", name, "--node-count=2", "--accelerator-type=v4-16"),
        *("--runtime-version=tpu-ubuntu2204-base", *extra),
        alpha=alpha,
    )


@pytest.mark.parametrize("alpha", [False, True], ids=["ga", "alpha"])
def test_queued_resources(gcloud: Gcloud, emulated: Emulated, alpha: bool) -> None:
    """Create with the overview's flags, list, describe, reset and delete, in the GA and the alpha track."""
    flags = ["--node-prefix=slice", "--spot", "--tags=one,two", "--valid-until-duration=6h"]
    flags += ["--network=default", "--subnetwork=default", "--metadata=startup-script=echo hi"]
    _create(gcloud, "cli", *flags, alpha=alpha)
    emulated.until(lambda: emulated.state("cli") == "ACTIVE")
    listed = gcloud("queued-resources", "list", alpha=alpha).stdout.splitlines()
    assert listed[0].split()[:4] == ["NAME", "ZONE", "NODE_COUNT", "ACCELERATOR_TYPE"]
    assert listed[0].split()[-1] == "STATE"
    assert listed[1].split() == ["cli", "us-central2-b", "2", "v4-16", "ACTIVE"]
    described = json.loads(gcloud("queued-resources", "describe", "cli", "--format=json", alpha=alpha).stdout)
    assert described["state"]["state"] == "ACTIVE"
    assert described["queueingPolicy"] == {"validUntilDuration": "21600s"}
    assert [spec["nodeId"] for spec in described["tpu"]["nodeSpec"]] == ["slice-0", "slice-1"]
    assert described["tpu"]["nodeSpec"][0]["node"]["tags"] == ["one", "two"]
    assert "spot" in described
    gcloud("queued-resources", "reset", "cli", alpha=alpha)
    refused = gcloud("queued-resources", "delete", "cli", status=1, alpha=alpha)
    assert "FAILED_PRECONDITION" in refused.stderr
    gcloud("queued-resources", "delete", "cli", "--force", alpha=alpha)
    assert emulated.state("cli") == "GONE"
    assert "NOT_FOUND" in gcloud("queued-resources", "describe", "cli", status=1, alpha=alpha).stderr


def test_errors_are_the_services(gcloud: Gcloud) -> None:
    """A wrong accelerator type and a taken name exit with 1 and the service's status."""
    args = ("queued-resources", "create", "wrong", "--node-count=2", "--runtime-version=tpu-ubuntu2204-base")
    assert "INVALID_ARGUMENT" in gcloud(*args, "--accelerator-type=v4-18", status=1).stderr
    _create(gcloud, "taken", "--async")
    again = ("queued-resources", "create", "taken", *args[3:], "--accelerator-type=v4-16")
    assert "ALREADY_EXISTS" in gcloud(*again, status=1).stderr


def test_ssh_and_scp_reach_every_worker(gcloud: Gcloud, emulated: Emulated, tmp_path: Path) -> None:
    """A command runs on all workers of all slices and a file is copied to them, with gcloud's own key."""
    _create(gcloud, "cli")
    emulated.until(lambda: emulated.state("cli") == "ACTIVE")
    everywhere = ("--node=all", "--worker=all")
    done = gcloud(
        "queued-resources", "ssh", "cli", *everywhere, "--command=echo on $NODE_ID $TPU_WORKER_ID", alpha=True
    )
    ran = sorted(line for line in done.stdout.splitlines() if line.startswith("on "))
    assert ran == ["on cli-0 0", "on cli-0 1", "on cli-1 0", "on cli-1 1"]
    (tmp_path / "payload").write_text("payload")
    gcloud("queued-resources", "scp", str(tmp_path / "payload"), "cli:", *everywhere, alpha=True)
    assert emulated.ssh("cli-1", "cat payload", worker=1).stdout == b"payload"
    done = gcloud("tpu-vm", "ssh", "cli-1", "--worker=1", "--command=cat payload; exit 4", status=4)
    assert "payload" in done.stdout
    gcloud("tpu-vm", "scp", "cli-1:payload", str(tmp_path / "back"), "--worker=1")
    assert (tmp_path / "back").read_text() == "payload"


def test_tpu_vms(gcloud: Gcloud, emulated: Emulated) -> None:
    """A VM is created, listed, described, updated, stopped, started, put through maintenance and deleted."""
    gcloud("tpu-vm", "create", "vm", "--accelerator-type=v4-8", "--version=tpu-ubuntu2204-base")
    listed = gcloud("tpu-vm", "list").stdout.splitlines()
    assert listed[0].split()[:3] == ["NAME", "ZONE", "ACCELERATOR_TYPE"]
    assert listed[1].split()[:3] == ["vm", "us-central2-b", "v4-8"]
    assert listed[1].split()[-1] == "READY"
    gcloud("tpu-vm", "update", "vm", "--update-labels=team=research", "--add-tags=web")
    described = json.loads(gcloud("tpu-vm", "describe", "vm", "--format=json").stdout)
    assert described["labels"] == {"team": "research"}
    attributes = gcloud("tpu-vm", "get-guest-attributes", "vm").stdout
    assert "ssh-ed25519" in attributes
    gcloud("tpu-vm", "stop", "vm")
    assert emulated.node("vm")["state"] == "STOPPED"
    gcloud("tpu-vm", "start", "vm")
    gcloud("tpu-vm", "simulate-maintenance-event", "vm", "--workers=0", alpha=True)
    assert emulated.node("vm")["state"] == "READY"
    gcloud("tpu-vm", "delete", "vm")
    assert emulated.rest("GET", f"/v2/{PARENT}/nodes").body == {}


def test_what_there_is(gcloud: Gcloud, emulated: Emulated) -> None:
    """Accelerator types, versions, topologies, locations and reservations are listed."""
    emulated.fault("reservation", name=f"{PARENT}/reservations/mine", chips=64)
    assert "v4-16" in gcloud("accelerator-types", "list").stdout
    assert "v4-16" in gcloud("tpu-vm", "accelerator-types", "list").stdout
    assert "tpu-ubuntu2204-base" in gcloud("tpu-vm", "versions", "list").stdout
    assert "tpu-ubuntu2204-base" in gcloud("versions", "list").stdout
    assert "2x2x2" in gcloud("topologies", "list").stdout
    assert "us-central2-b" in gcloud("locations", "list").stdout
    assert "mine" in gcloud("reservations", "list", alpha=True).stdout


def test_the_environment_can_be_printed(emulated: Emulated) -> None:
    """`emulator env` prints shell and %env lines without the token in them."""
    import sys

    for form, start in (([], "export CLOUDSDK_"), (["--magic"], "%env CLOUDSDK_")):
        argv = [sys.executable, "-c", _MAIN, "emulator", "env", *form]
        printed = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout
        assert printed.startswith(start)
        assert emulated.address.token not in printed


_MAIN = """
import argparse, sys
from multislice_nb.emulator import cli
parser = argparse.ArgumentParser()
cli.add_parser(parser.add_subparsers(required=True))
sys.exit(cli.run(parser.parse_args()))
"""
