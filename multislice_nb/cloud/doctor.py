"""One report of everything that has to be right before slices can be used."""

from __future__ import annotations

import os
import shutil
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from multislice_nb._portal import iterate
from multislice_nb.cloud.display import html_table, shouted, text_table
from multislice_nb.cloud.request import QueuedResourceRequest
from multislice_nb.cloud.ssh_settings import GCLOUD_KEY
from multislice_nb.errors import MultisliceError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from multislice_nb.cloud.session import Cloud

__all__ = ["Check", "Report", "adiagnose", "diagnose"]

OK, WARNING, FAILURE = "ok", "warning", "failure"
_MARKS = {OK: "✓", WARNING: "!", FAILURE: "✗"}
_HEADER = ("", "precondition", "found", "gcloud", "fix")


@dataclass(frozen=True, slots=True)
class Check:
    """One precondition.

    Attributes:
        name: What has to be right.
        verdict: ok, warning or failure.
        found: What was found.
        gcloud: The gcloud line that shows or settles the same.
        fix: What to do; empty when it is ok.
    """

    name: str
    verdict: str
    found: str
    gcloud: str = ""
    fix: str = ""

    def row(self) -> tuple[str, ...]:
        """Cells of a table."""
        return _MARKS[self.verdict], self.name, self.found, self.gcloud, self.fix

    def __str__(self) -> str:
        lines = [f"{_MARKS[self.verdict]} {self.name}: {self.found}"]
        lines += [f"    {text}" for text in (self.fix, self.gcloud) if text and self.verdict != OK]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Report:
    """All preconditions."""

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing failed; warnings are allowed."""
        return all(check.verdict != FAILURE for check in self.checks)

    def __getitem__(self, name: str) -> Check:
        return next(check for check in self.checks if check.name == name)

    def __str__(self) -> str:
        return "\n".join(str(check) for check in self.checks)

    def table(self) -> str:
        """All columns, gcloud's lines included, as text."""
        return text_table(shouted(_HEADER), [check.row() for check in self.checks])

    def _repr_html_(self) -> str:
        return html_table(_HEADER, [check.row() for check in self.checks])


def diagnose(
    cloud: Cloud,
    accelerator_type: str | None = None,
    runtime_version: str | None = None,
    *,
    progress: Callable[[Check], object] | None = None,
) -> Report:
    """Look at every precondition of using slices of a type through this connection.

    Args:
        cloud: The connection.
        accelerator_type: What is wanted; checks of zone and runtime version need it.
        runtime_version: The type's own when None.
        progress: Called here with each check as it is done.
    """
    checks = []
    for check in iterate(_checks, cloud, accelerator_type, runtime_version):
        checks.append(check)
        if progress is not None:
            progress(check)
    return Report(tuple(checks))


async def adiagnose(
    cloud: Cloud, accelerator_type: str | None = None, runtime_version: str | None = None
) -> Report:
    """Twin of `diagnose`."""
    return Report(tuple([check async for check in _checks(cloud, accelerator_type, runtime_version)]))


async def _checks(
    cloud: Cloud, accelerator_type: str | None, runtime_version: str | None
) -> AsyncIterator[Check]:
    yield _project(cloud)
    zones = await _api(cloud)
    yield zones[0]
    if zones[1]:
        yield _zone(cloud, zones[1])
        if accelerator_type:
            async for check in _type(cloud, accelerator_type, runtime_version):
                yield check
        yield await _dead(cloud)
    for check in _not_told(cloud):
        yield check
    yield _ssh_key(cloud)
    yield _agent(cloud)
    yield _gcloud()


def _project(cloud: Cloud) -> Check:
    found = f"{cloud.project} ({cloud.settings.project.origin})"
    return Check("project", OK, found, f"gcloud projects describe {cloud.project}")


async def _api(cloud: Cloud) -> tuple[Check, tuple[str, ...]]:
    """Credentials, the API and its permission show in the first call that succeeds."""
    gcloud = f"gcloud services list --enabled --filter=tpu.googleapis.com --project={cloud.project}"
    try:
        zones = await cloud.provider.list_zones()
    except MultisliceError as error:
        return Check("credentials and API", FAILURE, error.what, gcloud, error.fix), ()
    where = "the emulator answers" if cloud.is_emulator else f"answers, {len(zones)} zones"
    return Check("credentials and API", OK, where, gcloud), zones


def _zone(cloud: Cloud, zones: tuple[str, ...]) -> Check:
    gcloud = f"gcloud compute tpus locations list --project={cloud.project}"
    if cloud.zone in zones:
        return Check("zone", OK, f"{cloud.zone} ({cloud.settings.zone.origin})", gcloud)
    return Check("zone", FAILURE, f"{cloud.zone} has no TPUs", gcloud, f"Use one of {', '.join(zones)}.")


async def _type(cloud: Cloud, accelerator_type: str, runtime_version: str | None) -> AsyncIterator[Check]:
    listing = f"gcloud compute tpus tpu-vm accelerator-types list --zone={cloud.zone}"
    versions = f"gcloud compute tpus tpu-vm versions list --zone={cloud.zone}"
    try:
        wanted = QueuedResourceRequest(
            name="doctor", accelerator_type=accelerator_type, runtime_version=runtime_version
        )
        offered = await cloud.provider.list_accelerator_types(cloud.zone)
        software = await cloud.provider.list_runtime_versions(cloud.zone)
    except MultisliceError as error:
        yield Check("accelerator type", FAILURE, error.what, listing, error.fix)
        return
    kind = wanted.slice_type
    if kind.name in offered:
        yield Check("accelerator type", OK, f"{kind.name} is offered in {cloud.zone}", listing)
    else:
        fix = (
            f"Zones that offer {kind.generation.name}, by Google's pages: {', '.join(kind.generation.zones)}."
        )
        yield Check("accelerator type", FAILURE, f"{kind.name} is not offered in {cloud.zone}", listing, fix)
    version = str(wanted.runtime_version)
    known = version in software
    yield Check(
        "runtime version",
        OK if known else FAILURE,
        f"{version} {'exists' if known else 'does not exist'} in {cloud.zone}",
        versions,
        "" if known else f"Use {kind.runtime_version}, or one that the zone lists.",
    )


async def _dead(cloud: Cloud) -> Check:
    gcloud = f"gcloud compute tpus queued-resources list --zone={cloud.zone}"
    try:
        found = await cloud.provider.list_queued_resources(cloud.zone)
    except MultisliceError as error:
        return Check("quota held by dead requests", FAILURE, error.what, gcloud, error.fix)
    dead = [status for status in found if status.is_dead]
    if not dead:
        return Check("quota held by dead requests", OK, f"none of {len(found)} in {cloud.zone}", gcloud)
    names = ", ".join(status.name for status in dead)
    return Check(
        "quota held by dead requests",
        WARNING,
        f"{names} in {cloud.zone} hold {sum(status.chips or 0 for status in dead)} chips",
        gcloud,
        "See reclaim(), and sweep what you do not need.",
    )


def _not_told(cloud: Cloud) -> tuple[Check, ...]:
    """What the Cloud TPU API does not tell: say so instead of guessing."""
    if cloud.is_emulator:
        return (Check("network and quota", OK, "the emulator needs neither"),)
    network = f"gcloud compute firewall-rules list --filter=network:default --project={cloud.project}"
    quota = f"gcloud beta quotas info list --service=tpu.googleapis.com --project={cloud.project}"
    return (
        Check(
            "network and firewall",
            WARNING,
            "the Cloud TPU API does not tell",
            network,
            "Slices must reach each other inside the network, and SSH (port 22) must reach them.",
        ),
        Check(
            "quota",
            WARNING,
            "the Cloud TPU API does not tell; a request that has none FAILS with the quota's name",
            quota,
            "Compare the limit of the type and capacity with the chips you want.",
        ),
    )


def _ssh_key(cloud: Cloud) -> Check:
    make = f"ssh-keygen -t rsa -f {GCLOUD_KEY}"
    if not cloud.ssh.client_keys:
        fix = f"Make one, as the overview says: {make}"
        return Check("SSH key", FAILURE, f"{GCLOUD_KEY} does not exist", "gcloud compute config-ssh", fix)
    for key in cloud.ssh.client_keys:
        if not key.exists() and cloud.ssh.make_access:
            return Check("SSH key", OK, f"{key} is made at the first login", make)
        if not key.exists():
            return Check("SSH key", FAILURE, f"{key} does not exist", make, "Name another key, or make it.")
        if stat.S_IMODE(key.stat().st_mode) & 0o077:
            return Check("SSH key", WARNING, f"{key} can be read by others", "", f"chmod 600 {key}")
    return Check("SSH key", OK, ", ".join(str(key) for key in cloud.ssh.client_keys))


def _agent(cloud: Cloud) -> Check:
    socket = os.environ.get("SSH_AUTH_SOCK")
    if socket and os.path.exists(socket):  # noqa: PTH110 - an abstract name of the agent's
        return Check("SSH agent", OK, f"at {socket}")
    if cloud.is_emulator:
        return Check("SSH agent", OK, "not needed for the emulator")
    return Check(
        "SSH agent",
        WARNING,
        "none is running",
        "",
        "Needed only for keys with a passphrase: ssh-agent, ssh-add.",
    )


def _gcloud() -> Check:
    path = shutil.which("gcloud")
    if path:
        return Check("gcloud", OK, path)
    return Check("gcloud", WARNING, "not installed", "", "Not needed; the commands shown here need it.")
