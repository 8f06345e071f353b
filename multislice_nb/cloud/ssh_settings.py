"""How the workers of a connection are reached over SSH."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["SshSettings", "google_ssh"]

GCLOUD_KEY = "~/.ssh/google_compute_engine"
"""The key `gcloud compute ssh` makes, which the overview tells users to make."""


@dataclass(frozen=True, slots=True)
class SshSettings:
    """How to log in to workers.

    Attributes:
        user: User name; None is this machine's own.
        client_keys: Private key files.
        port_from_endpoint: Whether the SSH port is each endpoint's `port`; 22 otherwise.
        config_files: OpenSSH configuration files to obey.
        use_external_ip: Whether to use external addresses where there are any.
    """

    user: str | None
    client_keys: tuple[Path, ...]
    port_from_endpoint: bool
    config_files: tuple[Path, ...]
    use_external_ip: bool


def google_ssh(user: str | None, key: str | None) -> SshSettings:
    """For TPU VMs of Google Cloud: gcloud's key where it exists, and the user's own SSH configuration."""
    keys = [Path(key).expanduser()] if key else [Path(GCLOUD_KEY).expanduser()]
    config = Path("~/.ssh/config").expanduser()
    return SshSettings(
        user=user,
        client_keys=tuple(path for path in keys if key or path.exists()),
        port_from_endpoint=False,
        config_files=(config,) if config.exists() else (),
        use_external_ip=True,
    )
