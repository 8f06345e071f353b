"""The environment variables that point the real gcloud, and a bare Python client, at the emulator."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from multislice_nb.emulator.address import (
    DEFAULT_PROJECT,
    DEFAULT_ZONE,
    EmulatorAddress,
    private_folder,
    write_private,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

# gcloud knows no port for SSH; it calls `ssh` and `scp` as it finds them, so these stand in front.
_SHIM = """#!/bin/sh
for argument in "$@"; do
  case "$argument" in *127.83.*) exec {program} {flag} {port} "$@";; esac
done
exec {program} "$@"
"""


def token_file(home: Path) -> Path:
    """The file with the token alone, which gcloud reads."""
    return home / "token"


def credentials_file(home: Path) -> Path:
    """The service account that a bare Python client signs in with."""
    return home / "tls" / "service-account.json"


def certificate_file(home: Path) -> Path:
    """The certificate of the emulator's TLS face."""
    return home / "tls" / "certificate.pem"


def write_gcloud_files(home: Path, token: str, ssh_port: int) -> None:
    """Write what gcloud needs besides variables: the token, a configuration folder, shims for SSH's port."""
    write_private(token_file(home), token)
    private_folder(home / "gcloud")
    shims = private_folder(home / "gcloud-bin")
    # This process may have been started where these shims stand in front.
    others = [folder for folder in os.get_exec_path() if Path(folder).resolve() != shims.resolve()]
    for name, flag in (("ssh", "-p"), ("scp", "-P")):
        program = shutil.which(name, path=os.pathsep.join(others))
        if program and ssh_port:
            text = _SHIM.format(program=shlex.quote(program), flag=flag, port=ssh_port)
            write_private(shims / name, text, mode=0o700)
        else:
            (shims / name).unlink(missing_ok=True)


def client_environment(
    address: EmulatorAddress, *, project: str = DEFAULT_PROJECT, zone: str = DEFAULT_ZONE
) -> dict[str, str]:
    """The variables by name. The token is in a file that they name, not in them.

    Args:
        address: The running emulator.
        project: The project that gcloud shall assume.
        zone: The zone that gcloud shall assume.
    """
    return {
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": f"{address.url}/",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE": f"{address.url}/compute/v1/",
        "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE": str(token_file(address.home)),
        "CLOUDSDK_CONFIG": str(address.home / "gcloud"),
        "CLOUDSDK_CORE_PROJECT": project,
        "CLOUDSDK_COMPUTE_ZONE": zone,
        "CLOUDSDK_CORE_CHECK_GCE_METADATA": "false",
        "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
        "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "true",
        "GOOGLE_APPLICATION_CREDENTIALS": str(credentials_file(address.home)),
        "GOOGLE_CLOUD_PROJECT": project,
        "GOOGLE_CLOUD_UNIVERSE_DOMAIN": f"localhost:{address.port}",
        "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(certificate_file(address.home)),
    }


def as_shell(variables: Mapping[str, str], path_entry: Path) -> str:
    """Lines for `eval "$(...)"`."""
    lines = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    return "\n".join([*lines, f'export PATH={shlex.quote(str(path_entry))}:"$PATH"'])


def as_magic(variables: Mapping[str, str]) -> str:
    """Lines of `%env` for a notebook cell."""
    return "\n".join(f"%env {name}={value}" for name, value in variables.items())
