"""A request as a gcloud command, and back."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multislice_nb.cloud.field_checks import STARTUP_SCRIPT
from multislice_nb.cloud.gcloud_flags import join_dict, join_list, parse_create
from multislice_nb.cloud.request import DataDisk, QueuedResourceRequest
from multislice_nb.cloud.shelltext import read_paste
from multislice_nb.cloud.times import format_duration, format_time
from multislice_nb.errors import InvalidRequestError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from datetime import datetime, timedelta

__all__ = ["from_flags", "from_gcloud", "request_of", "to_argv", "to_gcloud"]

_SAME_NAME = (
    "project", "zone", "accelerator_type", "type", "topology", "runtime_version", "node_id", "node_prefix",
    "workload_type", "network", "subnetwork", "min_duration", "reservation", "valid_after_duration",
    "valid_after_time", "valid_until_duration", "valid_until_time", "service_account", "description", "spot",
    "reserved", "guaranteed", "best_effort", "internal_ips", "shielded_secure_boot",
    "autocheckpoint_enabled", "scopes", "tags", "labels",
)  # fmt: skip
_CONFIG_KEYS = {"project": "project", "core/project": "project", "compute/zone": "zone"}


def from_gcloud(text: str, variables: Mapping[str, str] | None = None) -> QueuedResourceRequest:
    """Read a pasted `gcloud compute tpus queued-resources create …`, GA or alpha.

    Args:
        text: The command, with continuation lines, a `$ ` prompt, and `export` and `gcloud config set` lines
            before it if it has any. Optional flags in brackets are left out.
        variables: Values of shell variables; the environment when None.

    Raises:
        InvalidRequestError: It is no such command, or asks for something that cannot be.
    """
    defaults: dict[str, str] = {}
    creates: list[tuple[list[str], bool]] = []
    for words in read_paste(text, variables).statements:
        if "create" in words and (words[0] != "gcloud" or "queued-resources" in words):
            creates.append((words[words.index("create") + 1 :], "alpha" in words[: words.index("create")]))
        elif words[:3] == ["gcloud", "config", "set"] and len(words) == 5 and words[3] in _CONFIG_KEYS:
            defaults[_CONFIG_KEYS[words[3]]] = words[4]
        elif words[0] != "gcloud":
            raise InvalidRequestError(
                f"{shlex.join(words)!r} is no gcloud command.", fix="Paste the create command alone."
            )
    if len(creates) != 1:
        found = f"{len(creates)} of them" if creates else "none"
        raise InvalidRequestError(
            f"One `gcloud compute tpus queued-resources create …` was expected, and the text has {found}.",
            fix="Paste exactly one create command.",
        )
    words, alpha = creates[0]
    return from_flags(words, api_version="v2alpha1" if alpha else "v2", **defaults)


def from_flags(words: list[str], **defaults: Any) -> QueuedResourceRequest:
    """From the words after `create`.

    Args:
        words: Name and flags.
        **defaults: Fields that count where no flag gives them.

    Raises:
        InvalidRequestError: Everything that is wrong with it.
    """
    return request_of(parse_create(words), **defaults)


def request_of(flags: argparse.Namespace, **defaults: Any) -> QueuedResourceRequest:
    """From parsed flags; see `gcloud_flags.add_create_flags`."""
    given = {name: getattr(flags, name) for name in _SAME_NAME}
    fields: dict[str, Any] = {**defaults, **{name: value for name, value in given.items() if value}}
    name = flags.name or ""
    if name.startswith("projects/"):
        parts = name.split("/")
        fields["project"], fields["zone"], name = parts[1], parts[3] if len(parts) > 3 else None, parts[-1]
    fields["name"] = name
    if flags.node_count is not None:
        fields["node_count"] = flags.node_count
        if flags.node_count == 1 and fields.get("node_prefix"):
            fields["node_id"] = f"{fields.pop('node_prefix')}-0"
    fields["metadata"] = _metadata(flags)
    fields["data_disks"] = tuple(
        DataDisk(disk.get("source", ""), disk.get("mode", "read-write")) for disk in flags.data_disk
    )
    fields["cidr_range"] = flags.range
    fields["reservation_host"] = _reservation_host(flags)
    _read_provisioning_model(flags.provisioning_model, fields)
    return QueuedResourceRequest(**fields)


def _metadata(flags: argparse.Namespace) -> dict[str, str]:
    metadata = dict(flags.metadata)
    for key, path in flags.metadata_from_file.items():
        try:
            metadata[key] = Path(path).expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidRequestError(
                f"--metadata-from-file: {path} cannot be read: {error}.", fix="Name a text file."
            ) from error
    return metadata


def _reservation_host(flags: argparse.Namespace) -> str | None:
    hosts = {
        "projects": flags.reservation_host_project,
        "folders": flags.reservation_host_folder,
        "organizations": flags.reservation_host_organization,
    }
    given = [f"{kind}/{host}" for kind, host in hosts.items() if host]
    if len(given) > 1:
        raise InvalidRequestError(
            "Only one reservation host is permitted.", fix=f"Choose: {', '.join(given)}."
        )
    return given[0] if given else None


def _read_provisioning_model(model: str | None, fields: dict[str, Any]) -> None:
    wanted = (model or "standard").lower().replace("_", "-")
    if wanted == "spot":
        fields["spot"] = True
    elif wanted != "standard":
        raise InvalidRequestError(
            f"--provisioning-model={model} cannot be sent by the client library.",
            fix="Use standard or spot, or run the command with gcloud itself.",
        )


def to_argv(request: QueuedResourceRequest) -> list[str]:
    """The gcloud command that asks for the same, as a list of words."""
    alpha = request.api_version == "v2alpha1" or bool(request.reservation) or _type_needs_alpha(request)
    track = ["alpha"] if alpha else []
    command = ["gcloud", *track, "compute", "tpus", "queued-resources", "create", request.name]
    return command + [flag for flag in _flags(request) if flag]


def to_gcloud(request: QueuedResourceRequest) -> str:
    """The gcloud command that asks for the same, one flag a line, quoted for a shell."""
    words = [shlex.quote(word) for word in to_argv(request)]
    split = words.index("create") + 2
    return " \\\n    ".join([" ".join(words[:split]), *words[split:]])


def _type_needs_alpha(request: QueuedResourceRequest) -> bool:
    """Gcloud's GA command knows --type v2, v3 and v4 only."""
    return bool(request.type) and request.slice_type.generation.name != "v4"


def _flags(request: QueuedResourceRequest) -> list[str]:
    several = request.node_count > 1
    kind = request.slice_type.generation.prefix if request.type else None
    host = request.reservation_host.split("/") if request.reservation_host else None
    metadata = dict(request.metadata)
    if request.startup_script is not None:
        metadata[STARTUP_SCRIPT] = str(request.startup_script)
    return [
        _flag("project", request.project),
        _flag("zone", request.zone),
        _flag("node-count", str(request.node_count) if several else None),
        _flag("node-prefix", request.node_prefix),
        _flag("node-id", None if several else request.node_ids[0]),
        _flag("workload-type", request.workload_type),
        _flag("accelerator-type", request.accelerator_type),
        _flag("type", kind),
        _flag("topology", request.topology),
        _flag("runtime-version", request.runtime_version),
        "--spot" if request.spot else "",
        "--best-effort" if request.best_effort else "",
        "--guaranteed" if request.guaranteed else "",
        _flag("min-duration", _duration(request.min_duration)),
        "--reserved" if request.reserved else "",
        _flag("reservation", request.reservation),
        _flag(f"reservation-host-{host[0].rstrip('s')}", host[1]) if host else "",
        _flag("network", request.network),
        _flag("subnetwork", request.subnetwork),
        "--internal-ips" if request.internal_ips else "",
        _flag("range", request.cidr_range),
        _flag("tags", join_list(list(request.tags)) if request.tags else None),
        _flag("labels", join_dict(dict(request.labels)) if request.labels else None),
        _flag("service-account", request.service_account),
        _flag("scopes", join_list(list(request.scopes)) if request.scopes else None),
        *(f"--data-disk=source={disk.source},mode={disk.mode}" for disk in request.data_disks),
        "--shielded-secure-boot" if request.shielded_secure_boot else "",
        "--autocheckpoint-enabled" if request.autocheckpoint_enabled else "",
        _flag("description", request.description),
        _flag("valid-after-duration", _duration(request.valid_after_duration)),
        _flag("valid-after-time", _time(request.valid_after_time)),
        _flag("valid-until-duration", _duration(request.valid_until_duration)),
        _flag("valid-until-time", _time(request.valid_until_time)),
        _flag("metadata", join_dict(metadata) if metadata else None),
    ]


def _flag(name: str, value: str | None) -> str:
    return f"--{name}={value}" if value is not None else ""


def _duration(value: timedelta | str | None) -> str | None:
    return None if value is None else format_duration(value)  # type: ignore[arg-type]  # normalised by the request


def _time(value: datetime | str | None) -> str | None:
    return None if value is None else format_time(value)  # type: ignore[arg-type]  # normalised by the request
