"""The way to a worker: straight, through one jump host, or through a command such as IAP's."""

from __future__ import annotations

import asyncio
import re
import shlex
import string
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from multislice_nb import errors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import asyncssh

    from multislice_nb.cloud import SshSettings
    from multislice_nb.cluster.inventory import Worker

__all__ = ["Way", "proxy_commands"]

JUMP_DEADLINE = 30.0
"""Seconds for the jump host to let us in."""

_JUMP = re.compile(r"(?:(?P<user>[^@\s]+)@)?(?P<host>\[[0-9A-Fa-f:.]+\]|[^:@\s]+)(?::(?P<port>\d{1,5}))?")


def proxy_commands(
    template: str | None, workers: Sequence[Worker], *, hostnames: Mapping[int, str], project: str, zone: str
) -> dict[int, tuple[str, ...]]:
    """The command through which each worker is reached, by rank.

    Args:
        template: As in `SshSettings.proxy_command`; None for no command.
        workers: All workers.
        hostnames: By rank, the name that the VM has for itself, as its guest attributes say.
        project: The project.
        zone: The zone.

    Raises:
        errors.ConfigurationError: It has a name in braces that is not known, or that this worker does not have.
    """
    if not template:
        return {}
    try:
        words = shlex.split(template)
        fields = {
            name for word in words for _, name, _, _ in string.Formatter().parse(word) if name is not None
        }
    except ValueError as error:
        raise errors.ConfigurationError(
            f"The proxy command cannot be read: {error}: {template}", fix="Close its quotes and braces."
        ) from error
    found = {}
    for worker in workers:
        values = {
            "host": worker.ssh_host,
            "port": str(worker.ssh_port),
            "node": worker.node_id,
            "worker": str(worker.worker_id),
            "zone": zone,
            "project": project,
        }
        if worker.rank in hostnames:
            values["hostname"] = hostnames[worker.rank]
        unknown = sorted(fields - set(values))
        if unknown:
            raise errors.ConfigurationError(
                f"The proxy command asks for {{{unknown[0]}}}, which {worker} does not have.",
                fix=f"Names that it may hold: {', '.join(sorted({*values, 'hostname'}))}.",
            )
        found[worker.rank] = tuple(word.format(**values) for word in words)
    return found


class Way:
    """How the connections of one cluster are made.

    Args:
        settings: The user's.
        proxies: By rank, a command to go through.
    """

    def __init__(self, settings: SshSettings, proxies: Mapping[int, Sequence[str]]) -> None:
        self.settings = settings
        self._proxies = proxies
        self._jump: asyncssh.SSHClientConnection | None = None
        self._opening = asyncio.Lock()

    @property
    def proxied(self) -> bool:
        """Whether a command of its own leads to each worker."""
        return bool(self._proxies)

    def log_in_as(self, user: str | None) -> None:
        """Log in to the workers as another user from now on; None for no other."""
        if user is not None:
            self.settings = replace(self.settings, user=user)

    async def open(self) -> None:
        """Connect to the jump host, where there is one and no connection stands: once for all workers.

        Raises:
            errors.ConnectError: It did not let us in, or the SSH configuration or the key cannot be used.
            errors.ConfigurationError: It is not named as `user@host:port`.
        """
        async with self._opening:
            if self.settings.jump and (self._jump is None or self._jump.is_closed()):
                await self._connect_to_jump(self.settings.jump)

    async def _connect_to_jump(self, jump: str) -> None:
        import asyncssh

        named = _JUMP.fullmatch(jump.strip())
        if named is None:
            raise errors.ConfigurationError(
                f"{jump!r} names no jump host.", fix="Name it as user@host or user@host:port."
            )
        options = self._login()
        if named["user"]:
            options["username"] = named["user"]
        host, port = named["host"].strip("[]"), int(named["port"]) if named["port"] else ()
        try:
            async with asyncio.timeout(JUMP_DEADLINE):
                self._jump = await asyncssh.connect(host, port, **options)
        except ValueError as error:
            raise unusable(error) from error
        except (OSError, asyncssh.Error) as error:  # TimeoutError is an OSError
            raise errors.ConnectError(
                f"The jump host {jump} did not let us in: {error or 'no answer'}.",
                fix="Try it with ssh: its key must be in ~/.ssh/known_hosts, and yours must be known there.",
            ) from error

    async def close(self) -> None:
        """Leave the jump host."""
        if self._jump is not None:
            jump, self._jump = self._jump, None
            jump.close()
            await jump.wait_closed()

    async def connect(self, worker: Worker, known_hosts: str | None) -> asyncssh.SSHClientConnection:
        """Connect to a worker.

        Args:
            worker: To which one.
            known_hosts: Lines of a known-hosts file; None to take any key, for who wants to see it first.
        """
        import asyncssh

        options = self._login() | {"known_hosts": known_hosts.encode() if known_hosts is not None else None}
        if self._jump is not None:
            options["tunnel"] = self._jump
        elif worker.rank in self._proxies:
            options["proxy_command"] = list(self._proxies[worker.rank])
        return await asyncssh.connect(worker.ssh_host, worker.ssh_port, **options)

    def _login(self) -> dict[str, Any]:
        settings = self.settings
        options: dict[str, Any] = {
            "config": [str(path) for path in settings.config_files if path.exists()],
            "keepalive_interval": 10,
            "connect_timeout": 20,
            "login_timeout": 30,
        }
        if settings.user:
            options["username"] = settings.user
        keys = [str(path) for path in settings.client_keys if path.exists()]
        if keys:
            options["client_keys"] = keys
        return options


def unusable(error: ValueError) -> errors.ConnectError:
    """What asyncssh says of a configuration or a key file that it cannot read."""
    return errors.ConnectError(
        f"The SSH configuration or key cannot be used: {error}.",
        fix="Mend that line of ~/.ssh/config; a key with a passphrase is used through ssh-agent: ssh-add.",
    )
