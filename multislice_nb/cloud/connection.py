"""`connect()`: to Google Cloud when a project is configured, to the emulator on this machine otherwise."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from typing import TYPE_CHECKING

from multislice_nb import config
from multislice_nb._portal import loop, sync
from multislice_nb.cloud import emulation
from multislice_nb.cloud.channel import google_clients, loopback_clients
from multislice_nb.cloud.client import TpuApi
from multislice_nb.cloud.janitor import delete
from multislice_nb.cloud.ledger import Entry, Ledger
from multislice_nb.cloud.session import Cloud
from multislice_nb.cloud.ssh_settings import SshSettings, google_ssh
from multislice_nb.errors import MultisliceError

if TYPE_CHECKING:
    from collections.abc import Hashable

    from multislice_nb.emulator.daemon import EmulatorAddress

__all__ = ["close_all", "connect"]

_lock = threading.Lock()
_open: dict[Hashable, Cloud] = {}


def connect(
    project: str | None = None,
    zone: str | None = None,
    *,
    endpoint: str | None = None,
    emulator: bool | None = None,
) -> Cloud:
    """Connect to the Cloud TPU API.

    With no project in the arguments, `%config Multislice`, the environment or gcloud's own settings, the
    emulator on this machine is used, and started if it does not run. Connecting again with the same settings
    gives the same connection.

    Args:
        project: Google Cloud project id.
        zone: Zone of queued resources.
        endpoint: Another host of the Cloud TPU API.
        emulator: True for the emulator, False for Google, None to decide by the project.

    Raises:
        ConfigurationError: A zone or credentials are missing.
        EmulatorError: The emulator did not start.
    """
    settings = config.settings(project, zone, endpoint=endpoint, emulator=emulator)
    address = emulation.running() if settings.is_emulator else None
    key = (settings, address.port if address else None, address.pid if address else None)
    with _lock:
        found = _open.get(key)
        if found is not None and not found.closed:
            return found
        if not _open:
            loop()  # first, so that its exit handler runs after ours
            atexit.register(_at_exit)
        _open[key] = made = _on_emulator(settings, address) if address else _on_google(settings)
    sync(made.janitor.start)
    return made


def close_all() -> None:
    """Close every connection of this process; queued resources stay."""
    with _lock:
        while _open:
            _open.popitem()[1].close()


def _at_exit() -> None:
    """Delete what was asked for until now, say what stays, then let go of everything."""
    left = {entry.request_id: (cloud, entry) for cloud in _open.values() for entry in _left_by_us(cloud)}
    for cloud, entry in left.values():
        if entry.request_id in cloud.until_exit and _deleted_at_exit(cloud, entry):
            continue
        sys.stderr.write(_farewell(entry))
    close_all()


def _left_by_us(cloud: Cloud) -> list[Entry]:
    """What this process asked for through a connection and has not seen gone."""
    if cloud.closed or (cloud.is_emulator and emulation.has_ended()):
        return []
    try:
        entries = cloud.ledger.entries()
    except MultisliceError as error:
        sys.stderr.write(f"{error}\n")
        return []
    return [entry for entry in entries if entry.owner_pid == os.getpid() and entry.project == cloud.project]


def _deleted_at_exit(cloud: Cloud, entry: Entry) -> bool:
    """Ask for its deletion without waiting for it: an ending kernel has a few seconds."""
    try:
        # Overdue from now on, so that the next connect() sees to it whatever comes of this.
        cloud.ledger.extend(entry.request_id, time.time())
        operation = sync(delete, cloud.provider, entry)
    except MultisliceError as error:
        sys.stderr.write(f"{error}\n")
        return False
    if operation is not None:
        sys.stderr.write(f"{entry.name} in {entry.zone} is being deleted, as its notebook ends.\n")
    return True


def _farewell(entry: Entry) -> str:
    """What becomes of a queued resource when the process that asked for it ends."""
    if entry.job:
        return (
            f"{entry.name} in {entry.zone} belongs to job {entry.job}, which goes on and deletes it at its end. "
            f"Look after it: python -m multislice_nb job status {entry.job} (and the --store that it was given)\n"
        )
    return (
        f"{entry.name} in {entry.zone} stays, with {entry.chips} chips. Find it again with reclaim(), or: "
        f"gcloud compute tpus queued-resources delete {entry.name} --zone={entry.zone} --force\n"
    )


def _on_emulator(settings: config.Settings, address: EmulatorAddress) -> Cloud:
    async def clients() -> TpuApi:
        target = f"{address.host}:{address.port}"
        return TpuApi(loopback_clients(target, address.token), str(settings.project.value), is_emulator=True)

    ssh = SshSettings(
        user=address.ssh_user,
        client_keys=(address.ssh_key,),
        port_from_endpoint=True,
        config_files=(),
        use_external_ip=False,
    )
    return Cloud(sync(clients), settings, ssh, _ledger("emulator"))


def _on_google(settings: config.Settings) -> Cloud:
    async def clients() -> TpuApi:
        return TpuApi(await google_clients(settings.endpoint.value), str(settings.project.value))

    configured = config.Multislice.instance()
    ssh = google_ssh(
        configured.ssh_user,
        configured.ssh_key,
        jump=configured.ssh_jump,
        proxy_command=configured.ssh_proxy_command,
        iap=configured.ssh_iap,
        internal_ip=configured.ssh_internal_ip,
    )
    return Cloud(sync(clients), settings, ssh, _ledger("google"))


def _ledger(realm: str) -> Ledger:
    return Ledger(config.state_home() / "ledger.sqlite3", realm)
