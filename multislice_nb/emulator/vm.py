"""One emulated TPU VM: a home folder, an SSH server on an address of its own, and the processes run on it.

It starts lazily. Until somebody connects or there is a startup script, a VM is a listening socket.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from multislice_nb.emulator import processes
from multislice_nb.emulator.address import private_folder, write_private
from multislice_nb.emulator.disk import FULL_DISK
from multislice_nb.emulator.environment import worker_environment
from multislice_nb.emulator.sshd import SshListener

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
    from pathlib import Path

    import asyncssh

    from multislice_nb.emulator.metadata import MetadataServer
    from multislice_nb.emulator.network import AddressPool
    from multislice_nb.tpu import AcceleratorType

log = logging.getLogger(__name__)

_SERIAL_LINES = 2000
# In front of a new process's command while the VM hangs: it stops before its first step.
_HUNG = ("bash", "-c", 'kill -STOP $$; exec "$@"', "bash")


@dataclass
class Machine:
    """What the VMs of one emulator share.

    Attributes:
        emulator_id: Starts the mark of every process of every VM.
        vms: The folder that holds the VMs' folders.
        shims: The folder with the `python3` that the VMs find first.
        user: The user name that SSH clients are told.
        authorized_key: The public key data that every VM accepts.
        addresses: Where workers get their addresses.
        ssh_port: The wanted SSH port; 0 for any.
        extra_ssh_ports: Further ports to listen on where that is allowed.
        metadata: The metadata server, which tells VMs apart by the address they call.
        api_url: The root of the emulator's REST face, for programs on the VMs.
        token: The bearer token that it wants; the VMs' service account hands it out.
    """

    emulator_id: str
    vms: Path
    shims: Path
    user: str
    authorized_key: bytes
    addresses: AddressPool
    metadata: MetadataServer
    ssh_port: int = 0
    extra_ssh_ports: tuple[int, ...] = ()
    api_url: str = ""
    token: str = field(default="", repr=False)


@dataclass
class VmFaults:
    """What is wrong with a VM on purpose."""

    ssh_refused: bool = False
    hung: bool = False
    disk_full: bool = False


@dataclass(eq=False)
class Vm:
    """A worker.

    Attributes:
        machine: What it shares with the others.
        node_id, worker_id, slice_id, slices, zone, project, accelerator: What it is a part of.
        folder: Its disk.
        mark: Its unique mark, in the environment of all of its processes.
        attempt: How many times this place in the queued resource has booted, replaced VMs included.
        slice_addresses: Gives the addresses of its slice, in worker order.
        coordinator_address: Gives the address of worker 0 of slice 0.
        node_metadata: Gives the node's metadata as it is now.
    """

    machine: Machine
    node_id: str
    worker_id: int
    slice_id: int
    slices: int
    zone: str
    project: str
    accelerator: AcceleratorType
    folder: Path
    mark: str
    slice_addresses: Callable[[], list[str]]
    coordinator_address: Callable[[], str]
    node_metadata: Callable[[], Mapping[str, str]]
    attempt: int = 0
    boots: int = 0
    faults: VmFaults = field(default_factory=VmFaults)
    attributes: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.address = self.machine.addresses.take()
        self.ssh_port = self.machine.ssh_port
        self.listener = SshListener(self)
        self.up = False
        self.used = False
        # A boot's script may still be ending when the next one's begins.
        self.running_scripts = 0
        self.metadata_port = 0
        self.serial: deque[str] = deque(maxlen=_SERIAL_LINES)
        self._host_key: asyncssh.SSHKey | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def home(self) -> Path:
        """The home folder."""
        return self.folder / "home"

    @property
    def tmp(self) -> Path:
        """The folder for temporary files."""
        return self.folder / "tmp"

    @property
    def startup_log(self) -> Path:
        """Where the startup script's output goes, of all boots."""
        return self.folder / "startup-script.log"

    @property
    def hostname(self) -> str:
        """The name the VM calls itself."""
        return f"{self.node_id}-w-{self.worker_id}".lower()

    @property
    def metadata_host(self) -> str:
        """Where its metadata server answers."""
        return f"{self.address}:{self.metadata_port}"

    def host_key(self) -> asyncssh.SSHKey:
        """Its SSH host key, which is part of its disk."""
        if self._host_key is None:
            import asyncssh

            self._host_key = asyncssh.generate_private_key("ssh-ed25519", comment=self.hostname)
        return self._host_key

    def change_host_key(self) -> None:
        """Answer with another host key from now on."""
        self._host_key = None
        self.listener.forget_host_key()

    def guest_attributes(self) -> list[tuple[str, str, str]]:
        """Triples of namespace, key and value, as a TPU VM publishes them."""
        algorithm, data = self.host_key().export_public_key().decode().split()[:2]
        return [("hostkeys", algorithm, data), ("guestInventory", "Hostname", self.hostname)]

    def authorized_keys(self, username: str) -> list[bytes]:
        """The public keys that may log in: the emulator's own, and those of the metadata for this user."""
        from multislice_nb.emulator.ssh_session import load_public_keys

        own = load_public_keys(self.node_metadata().get("ssh-keys", ""))
        return [self.machine.authorized_key, *(data for user, data in own if user == username)]

    def keep_task(self, task: asyncio.Task[None]) -> None:
        """Hold on to a task until it is done."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self.keep_task(asyncio.get_running_loop().create_task(work))

    # Power

    def power_on(self) -> None:
        """Boot: listen for SSH and run the startup script."""
        self.up = True
        self.boots += 1
        self.attempt += 1
        self.faults.hung = False  # what hung ended with the boot before
        if not self.faults.ssh_refused:
            self.listen()
        script = self.node_metadata().get("startup-script", "")
        if script.strip():
            self._start(self._run_startup_script(script))

    def listen(self) -> None:
        """Accept SSH connections."""
        self.ssh_port = self.listener.open(
            self.address, self.ssh_port, self.machine.extra_ssh_ports if self.machine.ssh_port else ()
        )

    def unplug(self) -> None:
        """Stop listening and drop all connections; its processes are ended by `power_off`."""
        self.up = False
        self.listener.close()
        self.machine.metadata.close(self)

    def release(self) -> None:
        """Give the address back, once the disk is gone."""
        self.machine.addresses.give_back(self.address)
        for folder in self.folder.parents:
            if folder == self.machine.vms:
                break
            try:
                folder.rmdir()
            except FileNotFoundError:
                continue
            except OSError:  # other workers' disks are in it
                break

    # Processes

    def prepare(self) -> None:
        """Make the folders and the metadata server that processes need."""
        for folder in (self.folder, self.home, self.tmp):
            private_folder(folder)
        self.metadata_port = self.machine.metadata.open(self)
        self.used = True

    async def spawn(
        self, argv: Sequence[str], extra: Mapping[str, str] | None = None, **streams: Any
    ) -> asyncio.subprocess.Process:
        """Start a process of the VM in a session of its own.

        Raises:
            ConnectionError: The VM is not running.
            OSError: It could not be started.
            ValueError: There is a NUL in what is to be started.
        """
        if not self.up:
            raise ConnectionError(f"{self.hostname} is not running")
        self.prepare()
        if self.faults.disk_full:
            argv = [*FULL_DISK, *argv]
        if self.faults.hung:
            argv = [*_HUNG, *argv]
        environment = worker_environment(self, user=self.machine.user, shims=self.machine.shims)
        child = await asyncio.create_subprocess_exec(
            *argv,
            cwd=self.home,
            env={**environment, **(extra or {})},
            start_new_session=True,
            **streams,
        )
        if not self.up:  # the power went while it started
            _kill_group(child.pid)
        return child

    async def _run_startup_script(self, script: str) -> None:
        self.prepare()
        path = self.folder / "startup-script"
        write_private(path, script, mode=0o700)
        argv = [str(path)] if script.startswith("#!") else ["bash", str(path)]
        extra = {"USER": "root", "LOGNAME": "root", "MULTISLICE_NB_ATTEMPT": str(self.attempt)}
        with self.startup_log.open("ab") as output:
            self._note(output, f"startup-script: boot {self.boots}, attempt {self.attempt}")
            try:
                child = await self.spawn(
                    argv, extra, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output
                )
            except OSError as error:
                self._note(output, f"startup-script: could not start: {error}")
                return
            self.running_scripts += 1
            try:
                code = await child.wait()
            finally:
                self.running_scripts -= 1
            self._note(output, f"startup-script exit status {code}")

    @staticmethod
    def _note(output: Any, line: str) -> None:
        output.write(f"{line}\n".encode())
        output.flush()

    def startup_output(self, limit: int = 1 << 20) -> str:
        """The end of what the startup script printed, of all boots."""
        try:
            with self.startup_log.open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - limit))
                return file.read().decode(errors="replace")
        except FileNotFoundError:
            return ""


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        log.debug("process group %d has already ended", pid)


async def power_off(vms: Iterable[Vm], *, grace: float = 0.3) -> None:
    """Turn VMs off: no connections, and no process of theirs is left."""
    targets = list(vms)
    for vm in targets:
        vm.unplug()
    used = [vm for vm in targets if vm.used]
    if not used:
        return
    marks, folders = [vm.mark for vm in used], [vm.folder for vm in used]
    left = await asyncio.to_thread(processes.end_all, marks, folders, grace=grace)
    if left:
        log.error("%d processes of %d VMs did not end", left, len(used))
