"""Where an emulator answers and where it keeps its state. Standard library only: clients import this."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

DEFAULT_PROJECT = "emulated-project"
DEFAULT_ZONE = "us-central2-b"
# In the state folder; locked as long as an emulator, or what it left, is there.
REAPER_LOCK = "reaper.lock"


@dataclass(frozen=True)
class EmulatorAddress:
    """How to reach a running emulator.

    Attributes:
        host: Always the loopback address.
        port: One TCP port for gRPC, REST and the emulator's own calls.
        token: The bearer token that every request needs; kept out of the repr.
        ssh_user: The user name for SSH to the emulated workers.
        ssh_key: The private key file that every emulated worker accepts.
        home: The emulator's state folder.
        pid: The daemon's process id.
        started: The daemon's start time in seconds since the epoch, which tells it from a later process of
            the same id.
        ssh_port: The usual SSH port of the workers; each endpoint names its own.
        reaper_pid: The process that ends what a killed daemon leaves behind.
    """

    host: str
    port: int
    token: str = field(repr=False)
    ssh_user: str
    ssh_key: Path
    home: Path
    pid: int
    started: float = 0.0
    ssh_port: int = 0
    reaper_pid: int = 0

    @property
    def target(self) -> str:
        """`host:port`, as gRPC wants it."""
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The root of the REST face."""
        return f"http://{self.target}"

    def write(self) -> None:
        """Save as daemon.json, readable by this user alone, in one step."""
        document = {
            "host": self.host,
            "port": self.port,
            "token": self.token,
            "ssh_user": self.ssh_user,
            "ssh_key": str(self.ssh_key),
            "pid": self.pid,
            "started": self.started,
            "ssh_port": self.ssh_port,
            "reaper_pid": self.reaper_pid,
        }
        draft = self.home / f"daemon.json.{os.getpid()}"
        write_private(draft, json.dumps(document, indent=1))
        draft.replace(address_file(self.home))

    @classmethod
    def read(cls, home: Path) -> EmulatorAddress | None:
        """What daemon.json says, or None where there is none (or half of one)."""
        try:
            document = json.loads(address_file(home).read_text())
            return cls(**{**document, "ssh_key": Path(document["ssh_key"]), "home": home})
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None


def address_file(home: Path) -> Path:
    """The file that says where the emulator answers."""
    return home / "daemon.json"


def emulator_home() -> Path:
    """The emulator's state folder: under MULTISLICE_NB_HOME, or this user's state folder."""
    root = os.environ.get("MULTISLICE_NB_HOME")
    if root:
        return Path(root).expanduser().resolve() / "emulator"
    import platformdirs

    return Path(platformdirs.user_state_dir("multislice_nb")).resolve() / "emulator"


def private_folder(path: Path) -> Path:
    """Make a folder that only this user may enter."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)
    return path


def write_private(path: Path, text: str, mode: int = 0o600) -> None:
    """Write a file that only this user may read, never readable by others even for a moment."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
