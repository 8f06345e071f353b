"""The daemon's own process: puts the emulator together, says where it answers, and ends when it is not needed."""

from __future__ import annotations

import asyncio
import getpass
import logging
import os
import secrets
import shutil
import signal
import sys
from pathlib import Path

import psutil

from multislice_nb import _descriptors
from multislice_nb.emulator import client_environment, grpc_face, network, reaper, tls
from multislice_nb.emulator.address import EmulatorAddress, address_file, private_folder, write_private
from multislice_nb.emulator.admin import Admin
from multislice_nb.emulator.clock import Clock
from multislice_nb.emulator.credentials import Credentials
from multislice_nb.emulator.engine import Engine
from multislice_nb.emulator.environment import write_interpreter_shims
from multislice_nb.emulator.metadata import MetadataServer
from multislice_nb.emulator.rest import Rest
from multislice_nb.emulator.vm import Machine
from multislice_nb.emulator.wire import Wire

log = logging.getLogger(__name__)

DEFAULT_IDLE = 900.0
_DESCRIPTORS = 65536


def _number(name: str, default: float) -> float:
    text = os.environ.get(name, "")
    try:
        return max(0.0, float(text)) if text else default
    except ValueError:
        log.warning("%s=%r is not a number; %s is used", name, text, default)
        return default


def _make_key(home: Path) -> Path:
    """The key pair that every worker accepts, made once per state folder."""
    import asyncssh

    folder = private_folder(home / "ssh")
    path = folder / "id_ed25519"
    if not path.exists() or not path.with_suffix(".pub").exists():
        key = asyncssh.generate_private_key("ssh-ed25519", comment="multislice_nb emulator")
        write_private(path, key.export_private_key().decode())
        write_private(path.with_suffix(".pub"), key.export_public_key().decode())
    return path


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without an entry, as in containers
        return "tpu"


async def _run(home: Path, emulator_id: str, scratch: Path) -> None:
    from aiohttp import web

    from multislice_nb.emulator.ssh_session import public_data

    key = _make_key(home)
    write_interpreter_shims(home / "bin")
    metadata = MetadataServer()
    await metadata.start()
    machine = Machine(
        emulator_id=emulator_id,
        vms=private_folder(home / "vms"),
        shims=home / "bin",
        user=_user(),
        authorized_key=public_data(key.with_suffix(".pub")),
        addresses=network.AddressPool(os.getpid()),
        metadata=metadata,
        ssh_port=network.pick_ssh_port(),
        extra_ssh_ports=(22,) if network.bindable("127.83.0.1", 22) else (),
    )
    engine = Engine(machine, Clock(_number("MULTISLICE_NB_EMULATOR_TIME_FACTOR", 1.0)))
    admin = Admin(engine, _number("MULTISLICE_NB_EMULATOR_IDLE", DEFAULT_IDLE))
    token = secrets.token_urlsafe(32)
    hosts: set[str] = set()
    credentials = Credentials(token)
    rest = Rest(engine, admin, credentials, hosts)
    runner = web.AppRunner(rest.application(), access_log=None, handle_signals=False)
    await runner.setup()
    grpc_path = str(scratch / "grpc")
    client_environment.write_gcloud_files(home, token, machine.ssh_port)
    wire = Wire(lambda: runner.server(), grpc_path, grpc_path + grpc_face.TLS_SUFFIX)  # type: ignore[misc]  # noqa: PLW0108 - there is a server once it is set up
    port = wire.open()
    keys = tls.prepare(home, port)
    credentials.signer = keys.signer
    grpc_server = await grpc_face.serve(engine, credentials, admin.active, grpc_path, keys)
    hosts |= {f"{host}:{port}" for host in ("127.0.0.1", "localhost", "tpu.localhost")}
    address = EmulatorAddress(
        host="127.0.0.1",
        port=port,
        token=token,
        ssh_user=machine.user,
        ssh_key=key,
        home=home,
        pid=os.getpid(),
        started=psutil.Process().create_time(),
        ssh_port=machine.ssh_port,
        reaper_pid=os.getppid(),
    )
    machine.api_url, machine.token = f"{address.url}/", token
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, admin.ending.set)
    admin.active()  # making keys was not idleness
    address.write()
    log.info("answering on %s", address.target)
    try:
        await admin.until_idle()
        log.info("ending")
    finally:
        address_file(home).unlink(missing_ok=True)
        client_environment.token_file(home).unlink(missing_ok=True)
        await wire.close()
        await engine.close()
        await metadata.stop()
        await runner.cleanup()
        await grpc_server.stop(0.1)
        # The reaper does this too; but it may be the reaper that was killed.
        for folder in (scratch, machine.vms):
            shutil.rmtree(folder, ignore_errors=True)


def main(home: Path, emulator_id: str, scratch: Path) -> None:
    """Run the daemon until it is not needed. Called in a process of its own by the reaper."""
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("asyncssh").setLevel(logging.WARNING)
    os.umask(0o077)
    reaper.end_with_parent()
    _descriptors.allow(_DESCRIPTORS)
    asyncio.run(_run(home, emulator_id, scratch))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
