"""The way to the workers: templates of commands, and keys that they do not know yet."""

from __future__ import annotations

import stat
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import multislice_nb as ms
from multislice_nb import errors
from multislice_nb.cloud.ssh_settings import IAP, google_ssh
from multislice_nb.cluster.access import public_key
from multislice_nb.cluster.inventory import Worker
from multislice_nb.cluster.reach import reach
from multislice_nb.cluster.ways import proxy_commands

if TYPE_CHECKING:
    from pathlib import Path

    from multislice_nb.cluster.reach import Reach

WORKERS = (
    Worker(0, 0, 0, "n-0", "10.0.0.2", "10.0.0.2"),
    Worker(1, 0, 1, "n-0", "10.0.0.3", "10.0.0.3", 2222),
)


def commands(template: str | None, **names: str) -> dict[int, tuple[str, ...]]:
    """The commands for two workers."""
    hostnames = {0: "t1v-n-0-w-0", 1: "t1v-n-0-w-1; rm -rf /"}
    return proxy_commands(template, WORKERS, hostnames=hostnames, project="p", zone="us-central2-b", **names)


def test_iap_is_reached_as_gcloud_does() -> None:
    """Through Identity-Aware Proxy, each worker's command names its VM, port, project and zone."""
    found = commands(IAP)
    assert found[0][:5] == ("gcloud", "compute", "start-iap-tunnel", "t1v-n-0-w-0", "22")
    assert {"--project=p", "--zone=us-central2-b", "--listen-on-stdin"} <= set(found[0])


def test_every_name_is_filled_in_as_one_word() -> None:
    """All documented names are filled in for each worker, and none of them can become another argument."""
    found = commands("way {host} {port} {hostname} {node}/{worker} {zone} {project}")
    assert found[0] == ("way", "10.0.0.2", "22", "t1v-n-0-w-0", "n-0/0", "us-central2-b", "p")
    assert found[1] == ("way", "10.0.0.3", "2222", "t1v-n-0-w-1; rm -rf /", "n-0/1", "us-central2-b", "p")
    assert commands(None) == {}


@pytest.mark.parametrize("template", ["nc {adress}", "nc '{host}", "nc {host", "nc {}"])
def test_a_name_that_is_not_known_is_refused(template: str) -> None:
    """A typing error in a command is told before anything is connected to."""
    with pytest.raises(errors.ConfigurationError, match="proxy command"):
        commands(template)


def test_only_one_way_may_be_named() -> None:
    """A jump host and IAP at once is refused, since only one of them could be taken."""
    with pytest.raises(errors.ConfigurationError, match="ssh_jump and ssh_iap"):
        google_ssh(None, None, jump="me@bastion", iap=True)
    assert not google_ssh(None, None, jump="me@bastion").use_external_ip
    assert google_ssh(None, None).use_external_ip


def test_a_key_is_made_once_as_gcloud_makes_it(tmp_path: Path) -> None:
    """A missing key is made, private to the user and fit for OpenSSH; a second call takes the same."""
    path = tmp_path / "ssh/google_compute_engine"
    first = public_key(path)
    assert first.startswith("ssh-rsa ")
    assert public_key(path) == first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    shown = subprocess.run(["ssh-keygen", "-y", "-f", path], check=True, capture_output=True, text=True)
    assert shown.stdout.split()[:2] == first.split()[:2]


def test_a_key_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """A passphrase or a broken file is an error that names the file and the way out."""
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", tmp_path / "locked"], check=True
    )
    assert public_key(tmp_path / "locked").startswith("ssh-ed25519")
    (tmp_path / "locked.pub").unlink()
    with pytest.raises(errors.ConfigurationError, match="locked cannot be used"):
        public_key(tmp_path / "locked")


def test_a_new_key_is_made_known_to_the_workers(reached: Reach, tmp_path: Path) -> None:
    """A user whom no worker knows gets in: the key is made, put into the nodes' metadata beside others, and taken."""
    cloud, usual = ms.connect(), ms.connect().ssh
    key = tmp_path / "google_compute_engine"
    cloud.ssh = replace(usual, user="newcomer", client_keys=(key,), make_access=True)
    other = (
        "somebody:ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIH5v7Z5m5J3m5m5m5m5m5m5m5m5m5m5m5m5m5m5m5m5m somebody"
    )
    name = reached.site.name
    try:
        from multislice_nb._portal import sync

        sync(cloud.provider.set_node_metadata, f"{name}-0", cloud.zone, {"ssh-keys": other})
        with reach(name, deadline=30) as hands:
            assert hands.shell.run("echo $USER").stdout == ["newcomer\n"] * 4
        kept = [node.metadata["ssh-keys"] for node in cloud.get(name).nodes()]
        assert other in kept[0]
        with reach(name, deadline=30):
            pass
        assert [node.metadata["ssh-keys"] for node in cloud.get(name).nodes()] == kept
    finally:
        cloud.ssh = usual


def test_a_login_that_os_login_decides_is_told(reached: Reach, tmp_path: Path) -> None:
    """Where metadata keys are passed over, the error says so and what to do, instead of trying for ever."""
    from multislice_nb._portal import sync

    cloud, usual = ms.connect(), ms.connect().ssh
    cloud.ssh = replace(usual, user="nobody", client_keys=(tmp_path / "key",), make_access=True)
    name = reached.site.name
    try:
        sync(cloud.provider.set_node_metadata, f"{name}-1", cloud.zone, {"enable-oslogin": "TRUE"})
        with pytest.raises(errors.ConfigurationError, match="OS Login"):
            reach(name, deadline=10)
    finally:
        sync(cloud.provider.set_node_metadata, f"{name}-1", cloud.zone, {"enable-oslogin": "FALSE"})
        cloud.ssh = usual
