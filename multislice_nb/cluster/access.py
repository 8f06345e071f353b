"""Have the workers know this user's SSH key, as `gcloud compute tpus tpu-vm ssh` does at its first use."""

from __future__ import annotations

import asyncio
import getpass
import os
import socket
from typing import TYPE_CHECKING

from multislice_nb import errors
from multislice_nb.cluster import os_login

if TYPE_CHECKING:
    from pathlib import Path

    from multislice_nb.cloud import QueuedResource

__all__ = ["give_access", "public_key"]


async def give_access(queued_resource: QueuedResource) -> str | None:
    """Have every worker know the public key; makes a key where there is none.

    It goes into the nodes' metadata, where keys of others stay, or into the account's OS Login profile where
    the nodes say that this decides. It takes the workers some seconds to notice.

    Returns:
        The user name to log in with, where OS Login gives another than was asked for.

    Raises:
        errors.ConfigurationError: The key cannot be read without its passphrase, or not written.
        errors.PermissionDeniedError: The account may not change nodes, or its own profile.
    """
    cloud = queued_resource.cloud
    key = await asyncio.to_thread(public_key, cloud.ssh.client_keys[0])
    nodes = await queued_resource.anodes()
    if any(node.metadata.get("enable-oslogin", "").upper() == "TRUE" for node in nodes):
        return await asyncio.to_thread(os_login.import_key, key, cloud.project)
    await queued_resource.aauthorize_ssh(cloud.ssh.user or getpass.getuser(), key)
    return None


def public_key(path: Path) -> str:
    """The public half of a private key file, in one line; the pair is made where there is none.

    Raises:
        errors.ConfigurationError: It is protected by a passphrase and has no `.pub` beside it, or cannot be
            read or made.
    """
    import asyncssh

    try:
        if not path.exists():
            _make(path)
        public = path.with_name(path.name + ".pub")
        if public.exists():
            return public.read_text().strip()
        return asyncssh.read_private_key(str(path)).export_public_key().decode().strip()
    except (OSError, asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
        raise errors.ConfigurationError(
            f"The SSH key {path} cannot be used: {error}.",
            fix="Name another with %config Multislice.ssh_key = '...', or put its public half beside it as .pub.",
        ) from error


def _make(path: Path) -> None:
    """Make a pair as gcloud does, so that gcloud goes on with it. Who comes second takes what the first made."""
    import asyncssh

    comment = f"{getpass.getuser()}@{socket.gethostname()}"
    key = asyncssh.generate_private_key("ssh-rsa", comment=comment, key_size=3072)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(key.export_private_key())
    try:
        os.link(partial, path)
    except FileExistsError:
        return
    finally:
        partial.unlink()
    path.with_name(path.name + ".pub").write_bytes(key.export_public_key())
