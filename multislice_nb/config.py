"""Project, zone and defaults, each with where it came from.

An argument beats `%config Multislice.…`, which beats the environment, which beats gcloud's own settings (its
files are read; gcloud itself need not be installed). With no project anywhere the emulator is used.
"""

from __future__ import annotations

import html
import os
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from traitlets import Bool, Float, Unicode
from traitlets.config import SingletonConfigurable

from multislice_nb.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "EMULATED_PROJECT",
    "EMULATED_ZONE",
    "ENVIRONMENT",
    "GCLOUD_PROPERTIES",
    "Multislice",
    "Setting",
    "Settings",
    "gcloud_properties",
    "settings",
    "state_home",
]

EMULATED_PROJECT = "emulated-project"
EMULATED_ZONE = "us-central2-b"
NOWHERE = "not set"

ENVIRONMENT: dict[str, tuple[str, ...]] = {
    "project": ("MULTISLICE_NB_PROJECT", "CLOUDSDK_CORE_PROJECT", "GOOGLE_CLOUD_PROJECT"),
    "zone": ("MULTISLICE_NB_ZONE", "CLOUDSDK_COMPUTE_ZONE"),
    "endpoint": ("MULTISLICE_NB_ENDPOINT",),
    "emulator": ("MULTISLICE_NB_EMULATOR",),
}
"""Which environment variables are read for which setting, the first one that is not empty counting."""

GCLOUD_PROPERTIES: dict[str, tuple[str, str]] = {"project": ("core", "project"), "zone": ("compute", "zone")}
"""Where gcloud's own configuration keeps them: section and key."""


class Multislice(SingletonConfigurable):
    """What `%config Multislice` shows and sets; also in `ipython_config.py` as `c.Multislice.project = …`."""

    project = Unicode(None, allow_none=True, help="Google Cloud project id").tag(config=True)
    zone = Unicode(None, allow_none=True, help="Zone of queued resources, as us-central2-b").tag(config=True)
    endpoint = Unicode(None, allow_none=True, help="Another host of the Cloud TPU API").tag(config=True)
    emulator = Bool(
        None, allow_none=True, help="True: always the emulator; False: never; None: when no project"
    ).tag(config=True)
    accelerator_type = Unicode(None, allow_none=True, help="Accelerator type of new requests").tag(
        config=True
    )
    network = Unicode(None, allow_none=True, help="VPC network of new requests").tag(config=True)
    subnetwork = Unicode(None, allow_none=True, help="VPC subnetwork of new requests").tag(config=True)
    ttl = Unicode(None, allow_none=True, help="Time to live of new queued resources, as 8h").tag(config=True)
    chip_hour_price = Float(
        None, allow_none=True, help="What a chip costs per hour, in your currency; cost is shown when set"
    ).tag(config=True)
    ssh_user = Unicode(None, allow_none=True, help="User name on the workers").tag(config=True)
    ssh_key = Unicode(None, allow_none=True, help="Private key file for the workers").tag(config=True)
    ssh_jump = Unicode(
        None, allow_none=True, help="Host to go through to the workers, as user@bastion:22"
    ).tag(config=True)
    ssh_proxy_command = Unicode(
        None,
        allow_none=True,
        help="Command to go through to a worker; may hold {host} {port} {hostname} {node}",
    ).tag(config=True)
    ssh_iap = Bool(None, allow_none=True, help="Go through Identity-Aware Proxy, with gcloud").tag(
        config=True
    )
    ssh_internal_ip = Bool(None, allow_none=True, help="Use the workers' internal addresses").tag(config=True)
    gang_grace = Float(
        None, allow_none=True, help="Seconds after a failure until the other workers are interrupted"
    ).tag(config=True)
    gang_lost_grace = Float(
        None, allow_none=True, help="Seconds after a worker's loss until the others are interrupted"
    ).tag(config=True)
    gang_interrupt_grace = Float(
        None, allow_none=True, help="Seconds after an interrupt until a worker counts as stuck"
    ).tag(config=True)
    gang_output_grace = Float(
        None, allow_none=True, help="Seconds after a worker's end for output that is on its way"
    ).tag(config=True)
    gang_kill_stuck = Bool(
        None, allow_none=True, help="Kill workers that an interrupt does not free; variables are lost"
    ).tag(config=True)
    gang_auto_restart = Bool(
        None, allow_none=True, help="Start a broken gang anew after the cell; variables are lost"
    ).tag(config=True)
    gang_inquiry = Float(
        None, allow_none=True, help="Seconds after a loss for the Cloud TPU API to say why"
    ).tag(config=True)
    gang_silence = Float(
        None, allow_none=True, help="Seconds without a word until it is said where the workers stand"
    ).tag(config=True)
    gang_abort_on_hang = Bool(None, allow_none=True, help="Stop a cell that was silent for so long").tag(
        config=True
    )
    gang_reconnect = Float(
        None, allow_none=True, help="Seconds for SSH to come back before a cell is let go of"
    ).tag(config=True)
    gang_heartbeat = Float(
        None, allow_none=True, help="Seconds without a sign until jax.distributed gives up on a process"
    ).tag(config=True)
    repair_deadline = Float(
        None, allow_none=True, help="Seconds that attach --recover waits for slices to be repaired"
    ).tag(config=True)


@dataclass(frozen=True, slots=True)
class Setting:
    """One value and where it came from."""

    value: str | None
    origin: str

    def __str__(self) -> str:
        return f"{self.value or '-'} ({self.origin})"


@dataclass(frozen=True, slots=True)
class Settings:
    """What a connection will use, each with its origin.

    Attributes:
        project: Google Cloud project id, or the emulator's.
        zone: Zone of queued resources.
        endpoint: Host of the Cloud TPU API; None is Google's default.
        emulator: "yes" or "no", and why.
    """

    project: Setting
    zone: Setting
    endpoint: Setting
    emulator: Setting

    @property
    def is_emulator(self) -> bool:
        """Whether the emulator on this machine is used."""
        return self.emulator.value == "yes"

    def rows(self) -> list[tuple[str, str, str]]:
        """Name, value and origin of each setting."""
        pairs = [(field.name, getattr(self, field.name)) for field in fields(self)]
        return [(name, setting.value or "-", setting.origin) for name, setting in pairs]

    def __str__(self) -> str:
        return "\n".join(f"{name:<9} {value:<24} {origin}" for name, value, origin in self.rows())

    def _repr_html_(self) -> str:
        cells = ("".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in self.rows())
        body = "".join(f"<tr>{row}</tr>" for row in cells)
        return f"<table><tr><th>setting</th><th>value</th><th>from</th></tr>{body}</table>"


def settings(
    project: str | None = None,
    zone: str | None = None,
    *,
    endpoint: str | None = None,
    emulator: bool | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Settings:
    """Decide project, zone, endpoint and whether the emulator is used.

    Args:
        project: Beats every other source.
        zone: Beats every other source.
        endpoint: Another host of the Cloud TPU API, as `tpu.example.com`.
        emulator: True for the emulator, False for Google whatever the rest says.
        environ: The environment to read.

    Raises:
        ConfigurationError: A project without a zone, or Google demanded without a project.
    """
    gcloud = gcloud_properties(environ)
    found_project = _first("project", project, environ, gcloud)
    found_zone = _first("zone", zone, environ, gcloud)
    found_endpoint = _first("endpoint", endpoint, environ, gcloud)
    decided = _emulator(emulator, found_project, environ)
    if decided.value == "yes":
        default = "the emulator's default"
        own_project = found_project if project else Setting(EMULATED_PROJECT, default)
        own_zone = found_zone if found_zone.value else Setting(EMULATED_ZONE, default)
        return Settings(own_project, own_zone, Setting(None, "the emulator's own"), decided)
    if not found_project.value:
        raise ConfigurationError(
            "No Google Cloud project is configured, and the emulator was ruled out.",
            fix="Name one: connect --project …, connect(project=…), GOOGLE_CLOUD_PROJECT, or `gcloud config set project …`.",
        )
    if not found_zone.value:
        raise ConfigurationError(
            f"Project {found_project.value} ({found_project.origin}) has no zone to go with it.",
            fix="Name one: connect --zone …, connect(zone=…), CLOUDSDK_COMPUTE_ZONE, or `gcloud config set compute/zone …`; "
            "to use the emulator instead, connect --emulator, or connect(emulator=True).",
        )
    return Settings(found_project, found_zone, found_endpoint, decided)


def _first(
    name: str, argument: str | None, environ: Mapping[str, str], gcloud: Mapping[str, Setting]
) -> Setting:
    if argument:
        return Setting(argument, "argument")
    configured = getattr(Multislice.instance(), name)
    if configured:
        return Setting(configured, f"%config Multislice.{name}")
    for variable in ENVIRONMENT[name]:
        if environ.get(variable):
            return Setting(environ[variable], f"environment {variable}")
    return gcloud.get(name, Setting(None, NOWHERE))


def _emulator(argument: bool | None, project: Setting, environ: Mapping[str, str]) -> Setting:
    if argument is not None:
        return Setting("yes" if argument else "no", "argument")
    if project.origin == "argument":
        return Setting("no", f"project {project.value} was named")
    configured = Multislice.instance().emulator
    if configured is not None:
        return Setting("yes" if configured else "no", "%config Multislice.emulator")
    for variable in ENVIRONMENT["emulator"]:
        text = environ.get(variable, "").strip().lower()
        if text:
            return Setting("no" if text in {"0", "false", "no", "off"} else "yes", f"environment {variable}")
    if project.value:
        return Setting("no", f"project {project.value} is configured")
    return Setting("yes", "no project is configured")


def gcloud_properties(environ: Mapping[str, str] = os.environ) -> dict[str, Setting]:
    """Project and zone from the active gcloud configuration's file, where there is one."""
    import configparser  # not before somebody connects

    folder = _gcloud_folder(environ)
    active = (
        environ.get("CLOUDSDK_ACTIVE_CONFIG_NAME") or _read(folder / "active_config").strip() or "default"
    )
    text = _read(folder / "configurations" / f"config_{active}")
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise ConfigurationError(
            f"gcloud's configuration {active} in {folder} cannot be read: {error}.",
            fix="Mend it with `gcloud config configurations describe`, or name project and zone yourself.",
        ) from error
    found = {}
    for name, (section, key) in GCLOUD_PROPERTIES.items():
        value = parser.get(section, key, fallback="")
        if value:
            found[name] = Setting(value, f"gcloud configuration {active}")
    return found


def _gcloud_folder(environ: Mapping[str, str]) -> Path:
    if environ.get("CLOUDSDK_CONFIG"):
        return Path(environ["CLOUDSDK_CONFIG"])
    if sys.platform == "win32":
        return Path(environ.get("APPDATA", "~")).expanduser() / "gcloud"
    return Path(environ.get("HOME") or Path.home()) / ".config" / "gcloud"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return ""


def state_home(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder where ledger, known hosts and the emulator keep their state, made with mode 0700."""
    named = environ.get("MULTISLICE_NB_HOME")
    if named:
        folder = Path(named).expanduser()
    else:
        from platformdirs import user_state_dir

        folder = Path(user_state_dir("multislice_nb"))
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder
