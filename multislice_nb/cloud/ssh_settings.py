"""How the workers of a connection are reached over SSH."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from multislice_nb.errors import ConfigurationError

__all__ = ["GCLOUD_KEY", "IAP", "SshSettings", "google_ssh"]

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
        jump: A host to go through, as `user@bastion:22`, its key checked against the user's own known hosts.
        proxy_command: A command that connects its standard streams to a worker. It may hold `{host}`, `{port}`,
            `{hostname}` (the VM's own name), `{node}`, `{worker}`, `{zone}` and `{project}`.
        make_access: Whether a worker that refuses the login is given the public key, as gcloud does, with a new
            key where there is none.
    """

    user: str | None
    client_keys: tuple[Path, ...]
    port_from_endpoint: bool
    config_files: tuple[Path, ...]
    use_external_ip: bool
    jump: str | None = None
    proxy_command: str | None = None
    make_access: bool = False


IAP = (
    "gcloud compute start-iap-tunnel {hostname} {port} --listen-on-stdin --project={project} --zone={zone} "
    "--verbosity=warning"
)
"""How gcloud itself reaches a TPU VM without an external address, through Identity-Aware Proxy."""


def google_ssh(
    user: str | None,
    key: str | None,
    *,
    jump: str | None = None,
    proxy_command: str | None = None,
    iap: bool | None = None,
    internal_ip: bool | None = None,
) -> SshSettings:
    """For TPU VMs of Google Cloud: gcloud's key, and the user's own SSH configuration.

    Args:
        user: User name; None is this machine's own, or the one of OS Login.
        key: Private key file; None is gcloud's, which is made where it is missing.
        jump: A host to go through, as `user@bastion:22`.
        proxy_command: A command to go through.
        iap: Whether to go through Identity-Aware Proxy.
        internal_ip: Whether to use internal addresses, as from inside the network; so does a jump.

    Raises:
        ConfigurationError: More than one way was named.
    """
    ways = [name for name, given in (("jump", jump), ("proxy_command", proxy_command), ("iap", iap)) if given]
    if len(ways) > 1:
        raise ConfigurationError(
            f"There is more than one way to the workers: ssh_{' and ssh_'.join(ways)}.",
            fix="Keep one: the other can be reached in the command or in ~/.ssh/config.",
        )
    config = Path("~/.ssh/config").expanduser()
    return SshSettings(
        user=user,
        client_keys=(Path(key or GCLOUD_KEY).expanduser(),),
        port_from_endpoint=False,
        config_files=(config,) if config.exists() else (),
        use_external_ip=not (internal_ip or jump),
        jump=jump,
        proxy_command=IAP if iap else proxy_command,
        make_access=True,
    )
