"""The way to the workers: templates of commands, and keys that they do not know yet."""

from __future__ import annotations

import json
import stat
import subprocess
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

import multislice_nb as ms
from multislice_nb import errors
from multislice_nb._portal import sync
from multislice_nb.cloud.ssh_settings import IAP, SshSettings, google_ssh
from multislice_nb.cluster import os_login
from multislice_nb.cluster.access import public_key
from multislice_nb.cluster.inventory import Worker
from multislice_nb.cluster.reaching import reach
from multislice_nb.cluster.ssh import Connections
from multislice_nb.cluster.ways import proxy_commands

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from multislice_nb.cluster.reaching import Reach

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


def test_a_configuration_that_ssh_cannot_read_is_told(tmp_path: Path) -> None:
    """On the way to the jump host and to the workers: an error that names it, not asyncssh's own."""
    broken = tmp_path / "config"
    broken.write_text("Host *\n  Port many\n")
    usual = SshSettings(None, (), port_from_endpoint=True, config_files=(broken,), use_external_ip=True)
    for settings in (usual, replace(usual, jump="me@127.0.0.1")):
        connections = Connections(settings, tmp_path / "known_hosts")
        with pytest.raises(errors.ConnectError, match="SSH configuration or key cannot be used"):
            sync(connections.open, WORKERS, {}, deadline=20)


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


def test_input_that_nobody_reads_is_no_lost_connection(
    reached: Reach, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command may end before it is sent its input; what it left is its exit status."""
    connection = reached.connections._open[0]
    create = connection.create_process

    async def create_late(*args: Any, **options: Any) -> Any:
        process = await create(*args, **options)
        await process.wait_closed()
        return process

    monkeypatch.setattr(connection, "create_process", create_late)
    ended = sync(reached.connections.run, 0, "echo told; exit 3", stdin=b"unread")
    assert (ended.exit_status, ended.stdout) == (3, "told\n")


class Profiles(BaseHTTPRequestHandler):
    """An OS Login that knows one account, and the keys that it was given."""

    keys: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        """Whose credentials these are."""
        self._answer(200, {"email": "someone@example.com"})

    def do_POST(self) -> None:
        """Take a key."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.path.startswith("/v1/users/someone%40example.com:importSshPublicKey?projectId="):
            self._answer(404, {})
            return
        self.keys.append(asked["key"])
        accounts = [{"username": "other"}, {"username": "someone_example_com", "primary": True}]
        self._answer(200, {"loginProfile": {"posixAccounts": accounts}})

    def _answer(self, status: int, body: dict[str, object]) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def os_login_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Profiles]]:
    """OS Login's two addresses on this machine."""
    from google.auth.credentials import AnonymousCredentials
    from google.auth.transport.requests import AuthorizedSession

    Profiles.keys.clear()
    with HTTPServer(("127.0.0.1", 0), Profiles) as server:
        address = f"http://127.0.0.1:{server.server_address[1]}"
        monkeypatch.setattr(os_login, "ENDPOINT", address)
        monkeypatch.setattr(os_login, "USER_INFO", f"{address}/userinfo")
        monkeypatch.setattr(os_login, "_session", lambda: AuthorizedSession(AnonymousCredentials()))
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield Profiles
        server.shutdown()
        thread.join()


def test_os_login_gets_the_key_and_names_the_user(
    reached: Reach, tmp_path: Path, os_login_server: type[Profiles]
) -> None:
    """Where OS Login decides, the key goes into the account's profile, and its user name is the one that logs in."""
    cloud, usual = ms.connect(), ms.connect().ssh
    name, key = reached.site.name, tmp_path / "key"
    cloud.ssh = replace(usual, user="nobody", client_keys=(key,), make_access=True)
    nodes = [node.node_id for node in cloud.get(name).nodes()]
    known = {"ssh-keys": f"someone_example_com:{public_key(key)}", "enable-oslogin": "TRUE"}
    try:
        for node in nodes:
            sync(cloud.provider.set_node_metadata, node, cloud.zone, known)
        with reach(name, deadline=10) as hands:
            assert hands.shell.run("echo $USER").stdout == ["someone_example_com\n"] * 4
        assert os_login_server.keys == [public_key(key)]
    finally:
        for node in nodes:
            sync(cloud.provider.set_node_metadata, node, cloud.zone, {"enable-oslogin": "FALSE"})
        cloud.ssh = usual


def test_an_os_login_that_refuses_is_told(
    os_login_server: type[Profiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What OS Login answers becomes an error with the way out."""
    monkeypatch.setattr(os_login, "ENDPOINT", f"{os_login.ENDPOINT}/nowhere")
    with pytest.raises(errors.PermissionDeniedError, match="404") as caught:
        os_login.import_key("ssh-ed25519 AAAA", "p")
    assert "os-login ssh-keys add" in caught.value.fix


def test_a_name_that_is_used_again_meets_no_old_host_key(emulator_home: Path) -> None:
    """A queued resource that is deleted and made again under its name has new host keys, and is connected to."""
    cloud = ms.connect()
    shown = []
    for _ in range(2):
        made = cloud.create("again", accelerator_type="v4-8", node_count=1)
        made.wait(timeout=60)
        with reach(made) as hands:
            assert hands.shell.run("true").ok
            shown.append(hands.connections.known_hosts.read_text())
        made.delete(force=True)
    assert shown[0] != shown[1]
    assert len(list((emulator_home / "known_hosts").rglob("again/*"))) == 1
