"""Everything over OpenSSH's own sshd: four servers on loopback addresses that stand for two slices of v4-16."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

import multislice_nb.emulator
from multislice_nb import errors
from multislice_nb._portal import sync
from multislice_nb.cloud import SshSettings
from multislice_nb.cluster.cluster import Cluster
from multislice_nb.cluster.formation import Formation
from multislice_nb.cluster.inventory import Worker
from multislice_nb.cluster.site import Site
from multislice_nb.cluster.ssh import Connections
from multislice_nb.tpu import AcceleratorType
from tests.processes import gone

if TYPE_CHECKING:
    from collections.abc import Iterator

    from multislice_nb.cluster.progress import CellProgress

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin:/usr/local/sbin")
pytestmark = pytest.mark.skipif(
    SSHD is None or not sys.platform.startswith("linux"), reason="needs OpenSSH's sshd and loopback addresses"
)

UNASKED = cast("Any", SimpleNamespace(touch=lambda: None))
"""In place of a queued resource, which nothing here asks anything of."""

FORCED = """#!/bin/bash
export HOME={home} PATH={shims}:/usr/bin:/bin PYTHONPATH={site} JAX_PLATFORMS=cpu JAX_NUM_CPU_DEVICES=4
export MULTISLICE_NB_WORKERS_PER_SLICE=2 MULTISLICE_NB_TEST={home}
cd
exec bash -c "$SSH_ORIGINAL_COMMAND"
"""

CONFIG = """
ListenAddress {address}:{port}
HostKey {folder}/host_key
AuthorizedKeysFile {root}/user_key.pub
PidFile {folder}/sshd.pid
ForceCommand {folder}/forced
PasswordAuthentication no
KbdInteractiveAuthentication no
StrictModes no
UsePAM no
MaxStartups 100
LogLevel VERBOSE
"""


@dataclass
class Machines:
    """Four machines.

    Attributes:
        site: Where they are.
        homes: Their home folders.
        folders: What each sshd has, its log included.
    """

    site: Site
    homes: list[Path]
    folders: list[Path]

    def connections(self, known_hosts: Path, **settings: Any) -> Connections:
        """Connections that are not open yet."""
        proxies = settings.pop("proxies", {})
        return Connections(replace(self.site.ssh, **settings), known_hosts, proxies)

    def logins(self) -> list[int]:
        """How many logins each sshd has seen."""
        return [(folder / "log").read_text().count("Accepted publickey") for folder in self.folders]


def free_port() -> int:
    """A port that no machine here has taken."""
    with socket.create_server(("127.83.200.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def make_key(path: Path) -> str:
    """Make a key pair; the public half."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path.with_name(path.name + ".pub").read_text().split()[1]


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Four sshd, ended with all that was run on them."""
    root, port = tmp_path_factory.mktemp("openssh"), free_port()
    make_key(root / "user_key")
    (root / "shims").mkdir()
    (root / "shims/python3").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    (root / "shims/python3").chmod(0o755)
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    worker_site = Path(multislice_nb.emulator.__file__).parent / "worker_site"
    workers, keys, homes, folders, servers = [], {}, [], [], []
    for rank in range(4):
        folder, address = root / f"machine{rank}", f"127.83.200.{rank + 1}"
        (folder / "home").mkdir(parents=True)
        keys[rank] = make_key(folder / "host_key")
        (folder / "config").write_text(CONFIG.format(address=address, port=port, folder=folder, root=root))
        (folder / "forced").write_text(
            FORCED.format(home=folder / "home", shims=root / "shims", site=worker_site)
        )
        (folder / "forced").chmod(0o755)
        workers.append(Worker(rank, rank // 2, rank % 2, f"n-{rank // 2}", address, address, port))
        homes.append(folder / "home")
        folders.append(folder)
        argv = [str(SSHD), "-D", "-f", str(folder / "config"), "-E", str(folder / "log")]
        servers.append(subprocess.Popen(argv))
    settings = SshSettings(None, (root / "user_key",), True, (), False)
    site = Site(
        name="openssh",
        workers=tuple(workers),
        accelerator_type=AcceleratorType.parse("v4-16"),
        node_count=2,
        tpu=False,
        ssh=settings,
        known_hosts=root / "known_hosts",
        host_keys=keys,
    )
    try:
        wait_for(workers)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MULTISLICE_NB_HOME", str(root / "state"))
            yield Machines(site, homes, folders)
    finally:
        for server in servers:
            server.terminate()
            server.wait()
        end_all(root)


def wait_for(workers: list[Worker]) -> None:
    """Wait until every sshd answers."""
    limit = time.monotonic() + 20
    for worker in workers:
        while True:
            try:
                socket.create_connection((worker.ssh_host, worker.ssh_port), timeout=1).close()
                break
            except OSError:
                assert time.monotonic() < limit, "an sshd did not start"
                time.sleep(0.05)


def end_sessions(folder: Path) -> list[int]:
    """Kill the processes of an sshd that serve its connections; their pids."""
    import psutil

    sessions = psutil.Process(int((folder / "sshd.pid").read_text())).children()
    for session in sessions:
        session.kill()
    return [session.pid for session in sessions]


def end_all(root: Path) -> None:
    """Kill what commands left running, found by the mark in their environment."""
    import psutil

    for process in psutil.process_iter():
        try:
            if process.environ().get("MULTISLICE_NB_TEST", "").startswith(str(root)):
                process.send_signal(signal.SIGKILL)
        except psutil.Error:
            continue


@pytest.mark.timeout(180)
def test_a_gang_forms_runs_and_survives_a_cut(machines: Machines, tmp_path: Path) -> None:
    """Cells, files and shell commands work over OpenSSH, and a cut connection leaves engines for the next attach."""
    formation = Formation(machines.site)
    sync(formation.form, deadline=100)
    cluster = Cluster(UNASKED, formation)
    try:
        assert cluster.run("import jax\njax.device_count()").values == [16] * 4
        cluster.run("kept = jax.process_index()")
        (tmp_path / "code").mkdir()
        (tmp_path / "code/module.py").write_text("VALUE = 42\n")
        assert len(cluster.files.push(tmp_path / "code").direct) == 1
        assert (
            cluster.run(
                "import os, sys; sys.path.append(os.path.expanduser('~/code')); import module; module.VALUE"
            ).values
            == [42] * 4
        )
        assert cluster.shell.run(
            "cat ~/code/module.py; exit $MULTISLICE_NB_RANK", check=False
        ).exit_statuses == [0, 1, 2, 3]
        pulled = cluster.files.pull("code/*.py", tmp_path / "back")
        assert pulled.files == dict.fromkeys(range(4), 1)
        dropped: list[int] = []

        def drop(progress: CellProgress) -> None:
            if "step 3" in str(progress) and not dropped:
                dropped.extend(end_sessions(machines.folders[0]))

        code = "import time\nfor i in range(20): print('step', i, flush=True); time.sleep(0.1)\ni"
        result = cluster.run(code, on_update=drop)
        assert dropped
        assert result.stdout == ["".join(f"step {i}\n" for i in range(20))] * 4
        assert result.values == [19] * 4
        sync(formation.leave)
        cluster.journal.close()
        again = Formation(machines.site)
        sync(again.form, deadline=100)
        assert again.reused
        formation = again
        cluster = Cluster(UNASKED, again)
        assert cluster.run("kept").values == [0, 1, 2, 3]
        cluster.journal.close()
    finally:
        sync(formation.dissolve)


def test_a_foreground_command_ends_with_its_connection(machines: Machines, tmp_path: Path) -> None:
    """When the notebook dies, what it ran in the foreground is ended there; what was detached goes on."""
    from multislice_nb.cluster.journal import Journal
    from multislice_nb.cluster.shell import Shell

    connections = machines.connections(tmp_path / "known")
    sync(connections.open, machines.site.workers, machines.site.host_keys, deadline=20)
    shell = Shell(connections, machines.site.workers, Journal(tmp_path / "logs", machines.site.workers))
    detached = shell.start("echo $$; exec sleep 300", distributed=False)
    pid_file = machines.homes[2] / "pid"

    def cut(_: object) -> None:
        if pid_file.exists() and pid_file.read_text().strip():
            sync(connections.abort)

    result = shell.run("echo $$ > ~/pid; echo on; exec sleep 300", ranks=2, check=False, on_update=cut)
    assert result.errors[0] is not None
    assert result.errors[0].ename == "WorkerLost"
    assert gone([int(pid_file.read_text())], 15)
    again = machines.connections(tmp_path / "known")
    sync(again.open, machines.site.workers, machines.site.host_keys, deadline=20)
    shell = Shell(again, machines.site.workers, Journal(tmp_path / "logs", machines.site.workers))
    assert shell.find(detached.id).status().running == [0, 1, 2, 3]
    shell.find(detached.id).stop(grace=1)
    sync(again.close)


def test_one_jump_host_for_all_workers(machines: Machines, tmp_path: Path) -> None:
    """Workers are reached through one connection to a jump host, whose key is checked as the user's own."""
    jump, others = machines.site.workers[0], machines.site.workers[1:]
    config = tmp_path / "config"
    config.write_text(f"Host {jump.ssh_host}\n  UserKnownHostsFile {tmp_path}/jump_hosts\n")
    (tmp_path / "jump_hosts").write_text(
        f"[{jump.ssh_host}]:{jump.ssh_port} ssh-ed25519 {machines.site.host_keys[0]}\n"
    )
    before = machines.logins()
    connections = machines.connections(
        tmp_path / "known", jump=f"{jump.ssh_host}:{jump.ssh_port}", config_files=(config,)
    )
    sync(connections.open, others, machines.site.host_keys, deadline=20)
    shown = sync(connections.run_all, "echo ${SSH_CONNECTION%% *}")
    sync(connections.close)
    assert [after - earlier for after, earlier in zip(machines.logins(), before, strict=True)] == [1, 1, 1, 1]
    assert all(end.exit_status == 0 for end in shown.values())
    (tmp_path / "jump_hosts").write_text("")
    with pytest.raises(errors.ConnectError, match=r"jump host .* did not let us in"):
        sync(connections.open, others, machines.site.host_keys, deadline=20)


def test_a_command_as_the_way(machines: Machines, tmp_path: Path) -> None:
    """A proxy command that connects its standard streams reaches a worker, and ends with the connection."""
    relay = tmp_path / "relay.py"
    relay.write_text(
        "import os, socket, sys, threading\n"
        "s = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
        "open(sys.argv[3], 'a').write(str(os.getpid()) + '\\n')\n"
        "def up():\n"
        "    while data := os.read(0, 65536): s.sendall(data)\n"
        "    s.shutdown(socket.SHUT_WR)\n"
        "threading.Thread(target=up, daemon=True).start()\n"
        "while data := s.recv(65536): os.write(1, data)\n"
    )
    chosen = machines.site.workers[:2]
    proxies = {
        w.rank: (sys.executable, str(relay), w.ssh_host, str(w.ssh_port), str(tmp_path / "pids"))
        for w in chosen
    }
    connections = machines.connections(tmp_path / "known", proxies=proxies)
    sync(connections.open, chosen, machines.site.host_keys, deadline=20)
    shown = sync(connections.run_all, "echo through")
    assert [end.stdout for end in shown.values()] == ["through\n"] * 2
    sync(connections.close)
    pids = [int(line) for line in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 2
    assert gone(pids)


def test_a_worker_is_held_to_the_key_it_showed_first(machines: Machines, tmp_path: Path) -> None:
    """A worker without a published key is trusted once; with another key later it is refused, and told as such."""
    chosen, known = machines.site.workers[:1], tmp_path / "known"
    for _ in range(2):
        connections = machines.connections(known)
        sync(connections.open, chosen, {}, deadline=20)
        sync(connections.close)
    assert machines.site.host_keys[0] in known.read_text()
    known.write_text(known.read_text().replace(machines.site.host_keys[0], machines.site.host_keys[1]))
    with pytest.raises(errors.ConnectError, match="rank 0") as caught:
        sync(machines.connections(known).open, chosen, {}, deadline=20)
    assert "Another machine answers there" in caught.value.fix


def test_a_key_that_is_never_taken_ends_with_a_deadline(machines: Machines, tmp_path: Path) -> None:
    """Waiting for a fresh key has an end, and the error says what was waited for."""
    make_key(tmp_path / "stranger")
    asked = []

    async def grant() -> None:
        asked.append(True)

    connections = machines.connections(tmp_path / "known", client_keys=(tmp_path / "stranger",))
    with pytest.raises(errors.ConnectError, match="was not taken within 1 s"):
        sync(connections.open, machines.site.workers[:2], machines.site.host_keys, deadline=1, grant=grant)
    assert asked == [True]
