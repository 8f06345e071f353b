"""A worker is reached, used and ended as a TPU VM is."""

from __future__ import annotations

import asyncio
import json
import shlex
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import asyncssh
import pytest

from multislice_nb.emulator import processes

if TYPE_CHECKING:
    import contextlib
    from pathlib import Path

    from tests.emulator.emulated_tpu import PARENT, Emulated
else:
    from emulated_tpu import PARENT, Emulated


def connected(pair: Emulated) -> contextlib.AbstractAsyncContextManager[asyncssh.SSHClientConnection]:
    """An SSH connection to worker 0 of the first slice, as a client of asyncssh makes it."""
    endpoint = pair.node("pair-0")["networkEndpoints"][0]
    return asyncssh.connect(
        endpoint["ipAddress"],
        endpoint["port"],
        username="anybody",
        client_keys=[str(pair.address.ssh_key)],
        known_hosts=None,
        config=None,
    )


MESH = """
import jax, jax.numpy as jnp, numpy as np, os, sys
from jax.experimental import mesh_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
rank = int(os.environ["TPU_WORKER_ID"]) + int(os.environ["MEGASCALE_SLICE_ID"]) * 2
jax.distributed.initialize(sys.argv[1], num_processes=4, process_id=rank, cluster_detection_method="deactivate")
devices = mesh_utils.create_hybrid_device_mesh((1, 8), (2, 1), jax.devices())
assert [[d.slice_index for d in row] for row in devices] == [[0] * 8, [1] * 8], devices
mesh = Mesh(devices, ("data", "fsdp"))
sharding = NamedSharding(mesh, P(("data", "fsdp")))
x = jax.make_array_from_callback((16,), sharding, lambda index: np.arange(16.0)[index])
ones = lambda v: jax.lax.psum(v, ("data", "fsdp"))
total = jax.jit(jax.shard_map(ones, mesh=mesh, in_specs=P(("data", "fsdp")), out_specs=P()))(x)
print(jax.process_count(), jax.device_count(), float(total.addressable_data(0)[0]))
"""


@pytest.fixture
def pair(emulated: Emulated) -> Emulated:
    """An emulator with the queued resource "pair": two slices of v4-16, four workers."""
    emulated.active("pair", 2, "v4-16")
    return emulated


def test_a_command_runs_in_the_workers_own_home_and_environment(pair: Emulated) -> None:
    """Exit status, standard streams and input go through; nothing of our own environment does."""
    done = pair.ssh("pair-1", "cat; echo err >&2; pwd; exit 7", worker=1, stdin=b"in\n")
    home = str(pair.address.home / "vms/pair/pair-1/1/home")
    assert (done.returncode, done.stdout.decode(), done.stderr) == (7, f"in\n{home}\n", b"err\n")
    lines = pair.ssh("pair-1", "env -0", worker=1).stdout.decode().split("\0")
    environment = dict(line.split("=", 1) for line in lines if line)
    assert environment["HOME"] == home
    assert environment["TPU_WORKER_ID"] == "1"
    assert environment["NODE_ID"] == environment["TPU_NAME"] == "pair-1"
    assert environment["JAX_NUM_CPU_DEVICES"] == "4"
    assert (environment["MEGASCALE_NUM_SLICES"], environment["MEGASCALE_SLICE_ID"]) == ("2", "1")
    first = pair.node("pair-0")["networkEndpoints"][0]["ipAddress"]
    assert environment["MEGASCALE_COORDINATOR_ADDRESS"].startswith(f"{first}:")
    assert "PYTEST_CURRENT_TEST" not in environment
    assert "MULTISLICE_NB_HOME" not in environment


def test_a_signal_ends_the_command_and_is_reported(pair: Emulated) -> None:
    """A command that dies of a signal is reported so, and the client's signals reach the whole session."""

    async def interrupt() -> asyncssh.SSHCompletedProcess:
        async with (
            connected(pair) as connection,
            connection.create_process("echo ready; sleep 100; echo never") as process,
        ):
            await process.stdout.readline()
            process.send_signal("TERM")
            return await process.wait()

    done = asyncio.run(interrupt())
    assert done.exit_signal is not None
    assert done.exit_signal[0] == "TERM"


def test_strangers_get_nothing(pair: Emulated, tmp_path: Path) -> None:
    """Another key, a password and no key at all are refused."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")], check=True)
    argv = pair.ssh_argv("pair-0")
    argv[argv.index("-i") + 1] = str(tmp_path / "key")
    argv += ["-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none", pair.where("pair-0"), "id"]
    refused = subprocess.run(argv, capture_output=True, timeout=60, check=False)
    assert (refused.returncode, refused.stdout) == (255, b"")
    assert b"Permission denied (publickey)" in refused.stderr


def test_a_key_in_the_metadata_lets_its_user_in(pair: Emulated, tmp_path: Path) -> None:
    """As gcloud does it: a key put into a node's ssh-keys works at once, for that user alone."""
    subprocess.run(["ssh-keygen", "-q", "-t", "rsa", "-N", "", "-f", str(tmp_path / "key")], check=True)
    public = (tmp_path / "key.pub").read_text().strip()
    node = pair.node("pair-0")
    body = {"metadata": {"ssh-keys": f"alice:{public}\nbroken line"}}
    operation = pair.rest("PATCH", f"/v2/{node['name']}?updateMask=metadata", body).body
    assert "response" in pair.finished(operation)

    def log_in(user: str) -> bytes:
        argv = pair.ssh_argv("pair-0")
        argv[argv.index("-i") + 1] = str(tmp_path / "key")
        address = node["networkEndpoints"][0]["ipAddress"]
        argv += ["-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none", f"{user}@{address}", "echo $USER"]
        return subprocess.run(argv, capture_output=True, timeout=60, check=False).stdout

    assert log_in("alice") == b"alice\n"
    assert log_in("bob") == b""


def test_files_go_both_ways(pair: Emulated, tmp_path: Path) -> None:
    """scp, over SFTP and over its older protocol, copies to the home folder and back, and exits with 0."""
    (tmp_path / "there").write_bytes(b"\x00payload" * 50_000)
    for index, option in enumerate([[], ["-O"]]):
        scp = [*pair.ssh_argv("pair-0", program="scp"), *option]
        where = pair.where("pair-0")
        subprocess.run([*scp, str(tmp_path / "there"), f"{where}:file-{index}"], check=True, timeout=60)
        subprocess.run([*scp, f"{where}:file-{index}", str(tmp_path / "back")], check=True, timeout=60)
        assert (tmp_path / "back").read_bytes() == (tmp_path / "there").read_bytes()
    assert pair.ssh("pair-0", "ls").stdout == b"file-0\nfile-1\n"
    missing = subprocess.run(
        [*pair.ssh_argv("pair-0", program="scp"), f"{pair.where('pair-0')}:nothing", str(tmp_path)],
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert missing.returncode == 1


def test_a_terminal(pair: Emulated) -> None:
    """With a terminal the command has one of the client's size, and Ctrl-C interrupts it."""

    async def talk() -> str:
        async with connected(pair) as connection:
            process = await connection.create_process(
                "size=$(tty >/dev/null && stty size); echo $size; exec sleep 100",
                term_type="xterm",
                term_size=(132, 43),
            )
            shown = await process.stdout.readline()
            process.stdin.write("\x03")
            rest = await process.stdout.read()
            return str(shown) + str(rest)

    shown = asyncio.run(asyncio.wait_for(talk(), 30))
    assert shown.startswith("43 132")


def test_a_terminal_s_command_goes_on_after_the_end_of_its_input(pair: Emulated) -> None:
    """As with sshd only a client that is gone hangs up: `ssh -tt HOST COMMAND < /dev/null` runs to its end."""
    argv = [*pair.ssh_argv("pair-0"), "-tt", pair.where("pair-0"), "sleep 0.5; echo done"]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, b"done\r\n")
    gone = subprocess.Popen([*argv[:-1], "echo here; sleep 311"], stdout=subprocess.PIPE)
    assert gone.stdout is not None
    assert gone.stdout.readline() == b"here\r\n"
    gone.kill()
    gone.communicate()
    pair.until(lambda: not processes.find(["no-such-mark"], [pair.address.home / "vms/pair/pair-0/0"]))


def test_a_command_that_cannot_be_started(pair: Emulated) -> None:
    """Status 126 and a sentence, with a terminal and without, on a connection that stays."""

    async def run() -> list[asyncssh.SSHCompletedProcess]:
        async with connected(pair) as connection:
            return [
                await connection.run("true " + "x" * 200_000),
                await connection.run("true \0", term_type="xterm"),
                await connection.run("echo fine"),
            ]

    long, broken, fine = asyncio.run(asyncio.wait_for(run(), 30))
    assert (long.exit_status, broken.exit_status, fine.stdout) == (126, 126, "fine\n")
    assert "Argument list too long" in str(long.stderr)
    assert "could not be started: embedded null byte" in str(broken.stdout)


def test_forwards_reach_the_worker_and_nothing_else(pair: Emulated) -> None:
    """A local forward to the worker's own address works; one to another worker's is refused."""

    async def forward() -> tuple[bytes, str]:
        own, other = (pair.node("pair-0")["networkEndpoints"][index] for index in (0, 1))
        server = socket.create_server((own["ipAddress"], 0))
        with server, ThreadPoolExecutor(1) as pool:
            pool.submit(lambda: server.accept()[0].sendall(b"hello from the worker"))
            async with connected(pair) as connection:
                reader, _ = await connection.open_connection(*server.getsockname(), encoding=None)
                greeting = await reader.readexactly(21)
                with pytest.raises(asyncssh.ChannelOpenError) as refusal:
                    await connection.open_connection(other["ipAddress"], other["port"])
                return greeting, str(refusal.value)

    greeting, refusal = asyncio.run(forward())
    assert greeting == b"hello from the worker"
    assert refusal


def test_a_hybrid_mesh_spans_the_slices(pair: Emulated) -> None:
    """create_hybrid_device_mesh works unchanged in four processes, and a psum over it is right."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    coordinator = f"{pair.node('pair-0')['networkEndpoints'][0]['ipAddress']}:{port}"
    workers = [(node, worker) for node in ("pair-0", "pair-1") for worker in (0, 1)]
    with ThreadPoolExecutor(4) as pool:
        runs = [
            pool.submit(pair.ssh, node, f"python3 - {coordinator}", worker, MESH.encode())
            for node, worker in workers
        ]
        results = [run.result() for run in runs]
    for done in results:
        assert done.returncode == 0, done.stderr.decode()
        assert done.stdout.decode().splitlines()[-1].split() == ["4", "16", "120.0"]


def test_the_slice_index_hook_is_harmless_without_jax(pair: Emulated) -> None:
    """Python starts silently on a worker, and imports no jax for it."""
    code = "import sys; print(any(name.startswith('jax') for name in sys.modules), sys.flags.no_site)"
    done = pair.ssh("pair-0", f'python3 -c "{code}"')
    assert (done.stdout, done.stderr) == (b"False 0\n", b"")


def test_deleting_ends_what_runs_on_the_slices(pair: Emulated) -> None:
    """After a deletion no process of the slices is left, daemonized ones included, and SSH is refused."""
    argv, where = pair.ssh_argv("pair-1"), pair.where("pair-1")
    pair.ssh("pair-1", "setsid nohup python3 -c 'import time; time.sleep(300)' >/dev/null 2>&1 &")
    pair.ssh("pair-1", "(trap '' TERM; cd $HOME; exec env -i setsid sleep 304) >/dev/null 2>&1 &")
    folder = pair.address.home / "vms/pair"
    assert len(processes.find(["no-such-mark"], [folder])) >= 2
    pair.delete("pair")
    assert not processes.find(["no-such-mark"], [folder])
    assert not folder.exists() or not list(folder.rglob("home"))
    refused = subprocess.run([*argv, where, "true"], capture_output=True, timeout=30, check=False)
    assert b"refused" in refused.stderr


def test_a_reset_clears_memory_and_keeps_the_disk(pair: Emulated) -> None:
    """Processes end, files stay."""
    pair.ssh("pair-0", "echo kept > file; setsid sleep 305 >/dev/null 2>&1 &")
    operation = pair.rest("POST", f"/v2/{PARENT}/queuedResources/pair:reset", {}).body
    assert pair.finished(operation)["response"]["state"]["state"] == "ACTIVE"
    assert pair.ssh("pair-0", "cat file; pgrep -f '^sleep 305' | wc -l").stdout == b"kept\n0\n"


def test_stop_and_start_keep_the_disk(emulated: Emulated) -> None:
    """A single-VM node is stopped and started with its files; a slice of several VMs refuses."""
    emulated.active("single", accelerator_type="v4-8")
    emulated.active("several", accelerator_type="v4-16")
    emulated.ssh("single-0", "echo kept > file")
    path = f"/v2/{PARENT}/nodes"
    emulated.finished(emulated.rest("POST", f"{path}/single-0:stop", {}).body)
    assert emulated.node("single-0")["state"] == "STOPPED"
    assert emulated.rest("POST", f"{path}/single-0:stop", {}).body["error"]["status"] == "FAILED_PRECONDITION"
    emulated.finished(emulated.rest("POST", f"{path}/single-0:start", {}).body)
    assert emulated.ssh("single-0", "cat file").stdout == b"kept\n"
    assert (
        emulated.rest("POST", f"{path}/several-0:stop", {}).body["error"]["status"] == "FAILED_PRECONDITION"
    )


def test_the_startup_script_runs_at_every_boot(emulated: Emulated) -> None:
    """It runs at creation and after a reset, with the boot visible in its kept output."""
    script = "#! /bin/bash \necho started as $USER on $TPU_NAME\nexit 3\n"
    emulated.active("boot", 2, node={"metadata": {"startup-script": script}})

    def output(node: str) -> str:
        return str(emulated.rest("GET", f"/emulator/v1/startupOutput?node={node}&worker=0").body["output"])

    emulated.until(lambda: "exit status 3" in output("boot-1"))
    assert "boot 1, attempt 1" in output("boot-1")
    assert "started as root on boot-1" in output("boot-1")
    emulated.finished(emulated.rest("POST", f"/v2/{PARENT}/queuedResources/boot:reset", {}).body)
    emulated.until(lambda: output("boot-0").count("exit status 3") == 2)
    assert "boot 2, attempt 2" in output("boot-0")


def test_the_metadata_server_knows_its_vm(pair: Emulated) -> None:
    """tpu-env, attributes and the maintenance keys are there for a program on the VM, which must send the header."""
    url = "http://$GCE_METADATA_HOST/computeMetadata/v1"
    ask = "curl -s -H Metadata-Flavor:Google"
    lines = (
        pair.ssh("pair-1", f"{ask} {url}/instance/attributes/tpu-env", worker=1).stdout.decode().splitlines()
    )
    tpu_env = dict(line.split(": ", 1) for line in lines)
    assert tpu_env["ACCELERATOR_TYPE"] == "'v4-16'"
    assert tpu_env["WORKER_ID"] == "'1'"
    assert tpu_env["MEGASCALE_SLICE_ID"] == "'1'"
    assert tpu_env["HOST_BOUNDS"] == "'1,1,2'"
    assert pair.ssh("pair-1", f"{ask} {url}/instance/preempted").stdout == b"FALSE"
    assert pair.ssh("pair-1", f"{ask} {url}/instance/maintenance-event").stdout == b"NONE"
    assert pair.ssh("pair-1", f"{ask} {url}/project/project-id").stdout == b"emulated-project"
    everything = json.loads(
        pair.ssh("pair-1", f"{ask} '{url}/instance/?recursive=true'".replace("'", '"')).stdout
    )
    assert everything["attributes"]["agent-worker-number"] == "0"
    assert b"Missing" in pair.ssh("pair-1", f"curl -s {url}/instance/id").stdout
    assert pair.ssh("pair-1", f"{ask} -o /dev/null -w '%{{http_code}}' {url}/instance/none").stdout == b"404"


def test_google_s_own_library_signs_in_on_a_worker(pair: Emulated) -> None:
    """A program there finds its service account as on a TPU VM: what reads a bucket signs in like that."""
    program = (
        "import google.auth; from google.auth.transport.requests import Request; c, project = google.auth.default();"
        "c.refresh(Request()); print(project, c.service_account_email, bool(c.token), c.expired)"
    )
    told = pair.ssh("pair-0", f"{sys.executable} -c {shlex.quote(program)}").stdout.decode()
    assert told == "emulated-project service-account@emulated-project.iam.gserviceaccount.com True False\n"


def test_the_slice_index_hook_runs_the_sitecustomize_that_it_hides(tmp_path: Path) -> None:
    """A customisation of the site's own still runs on a worker."""
    import os
    import sys

    from multislice_nb.emulator.environment import WORKER_SITE

    (tmp_path / "sitecustomize.py").write_text("print('the site')")
    path = os.pathsep.join([str(WORKER_SITE), str(tmp_path)])
    argv = [sys.executable, "-c", "pass"]
    done = subprocess.run(argv, capture_output=True, check=True, env={"PYTHONPATH": path})
    assert (done.stdout, done.stderr) == (b"the site\n", b"")
