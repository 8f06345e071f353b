"""What a job is: everything that was asked for, checked, and kept as one JSON document.

The workers read the same document, so this module needs the standard library alone.
"""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self

from multislice_nb.errors import InvalidRequestError
from multislice_nb.jobs.layout import NAME

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["JobSpec", "Limits"]

_SECRET = re.compile(
    r"(?i)(^|_)(token|secret|password|passwd|passphrase|api_?key|access_?key|private_?key|credentials?)(_|$)"
)
# What secrets look like, whatever they are called; source: their makers' own pages.
_SECRET_VALUES = {
    "a GitHub token": r"\b(gh[pousr]_[A-Za-z0-9]{36,}|github_pat_\w{22,})",
    "a GitLab token": r"\bglpat-[\w-]{20,}",
    "a Hugging Face token": r"\bhf_[A-Za-z0-9]{30,}",
    "a Google API key": r"\bAIza[\w-]{35}",
    "a Google access token": r"\bya29\.[\w-]{20,}",
    "an AWS access key": r"\bAKIA[0-9A-Z]{16}\b",
    "a Slack token": r"\bxox[abprs]-[\w-]{10,}",
    "an API key": r"(?<![\w-])sk-[\w-]{20,}",
    "a private key": r"-----BEGIN [A-Z ]*PRIVATE KEY-----",
    "a password in a URL": r"://[^/\s:@'\"]+:[^/\s@'\"]+@",
}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET_VERSION = re.compile(r"projects/[^/]+/secrets/[^/]+/versions/[^/]+")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long things may take, and how often they may go wrong. All times are seconds.

    Attributes:
        time_limit: For the whole run, waiting for repairs included; at its end everything is deleted.
        max_restarts: Failures of the command after which it is started again.
        max_repairs: Slices lost (preemption, maintenance, hardware) after which it goes on; None for any number.
        no_restart_codes: Exit statuses that starting again would not change.
        backoff: Wait before the first restart; doubles with each, up to ten minutes.
        repair_timeout: For a gang to be complete again; capacity for a lost slice may take long.
        stall_timeout: No output from any worker for that long counts as a failure; None to let it be.
        term_grace: From SIGTERM to SIGKILL.
        heartbeat: Between two signs of life of a worker.
        lost_after: Without a sign of life a worker is taken for lost.
        final_grace: For logs and results to be uploaded at the end before the slices are deleted anyway.
        boot_timeout: A worker of a READY slice that is not heard of for that long makes all be reset.
    """

    time_limit: float = 7 * 86400.0
    max_restarts: int = 3
    max_repairs: int | None = None
    no_restart_codes: tuple[int, ...] = (2, 126, 127)
    backoff: float = 10.0
    repair_timeout: float = 6 * 3600.0
    stall_timeout: float | None = None
    term_grace: float = 30.0
    heartbeat: float = 5.0
    lost_after: float = 60.0
    final_grace: float = 600.0
    boot_timeout: float = 1800.0

    def faults(self) -> list[tuple[str, str]]:
        """What is wrong with them, and how to mend it."""
        above = ("time_limit", "repair_timeout", "heartbeat", "lost_after", "final_grace", "boot_timeout")
        stalls = ("stall_timeout",) if self.stall_timeout is not None else ()
        repairs = ("max_repairs",) if self.max_repairs is not None else ()
        found = [
            (f"{name} cannot be {getattr(self, name)}.", "Give it a number of seconds above nought.")
            for name in (*above, *stalls)
            if not (_is_number(getattr(self, name)) and getattr(self, name) > 0)
        ]
        found += [
            (f"{name} cannot be {getattr(self, name)}.", "Give it a number of seconds, 0 for at once.")
            for name in ("backoff", "term_grace")
            if not (_is_number(getattr(self, name)) and getattr(self, name) >= 0)
        ]
        found += [
            (f"{name} cannot be {getattr(self, name)}.", "Give it a whole number, 0 for never.")
            for name in ("max_restarts", *repairs)
            if not (isinstance(getattr(self, name), int) and getattr(self, name) >= 0)
        ]
        if found:
            return found
        if self.lost_after < 3 * self.heartbeat:
            found.append(
                (
                    f"lost_after ({self.lost_after:g} s) is less than three heartbeats ({self.heartbeat:g} s each).",
                    "One slow write would look like a lost worker: raise it.",
                )
            )
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """What was asked for.

    Attributes:
        name: Its name, unique in the store.
        command: A shell command, which runs on every worker in the folder of the code.
        accelerator_type: What each slice is.
        node_count: Slices.
        workers_per_slice: Workers of each slice.
        package: The code's archive, or empty for none.
        library: The archive of this package that the workers run.
        requirements: Python packages the command needs, as pip writes them.
        setup: A shell command that prepares a worker once, before the first attempt.
        env: Environment variables.
        secrets: Environment variables whose values are versions in Secret Manager, read by the workers.
        request: Further fields of the queued resource request: spot, network, …
        limits: Times and counts.
        source: What it was made from, for people: a folder, a notebook.
    """

    name: str
    command: str
    accelerator_type: str
    node_count: int = 1
    workers_per_slice: int = 1
    package: str = ""
    library: str = ""
    requirements: tuple[str, ...] = ()
    setup: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    request: Mapping[str, Any] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    source: str = ""

    def __post_init__(self) -> None:
        faults = [*self._faults(), *self.limits.faults()]
        if faults:
            raise InvalidRequestError.of_faults(f"Job {self.name}", faults)

    @property
    def workers(self) -> int:
        """Workers of all slices together."""
        return self.node_count * self.workers_per_slice

    def _faults(self) -> list[tuple[str, str]]:
        found = []
        if not NAME.fullmatch(self.name):
            hint = "Use up to 40 lower-case letters, digits and hyphens, a letter first."
            found.append((f"{self.name!r} is no name for a job.", hint))
        if not self.command.strip():
            found.append(("It has no command.", "Say what runs on every worker, as in 'python3 train.py'."))
        found += [
            (f"{name!r} is no environment variable.", "Use letters, digits and underscores.")
            for name in (*self.env, *self.secrets)
            if not _VARIABLE.fullmatch(name)
        ]
        found += [
            (
                f"The environment variable {name} looks like a secret, and a job's record is no place for one.",
                f"Put it into Secret Manager: secrets={{'{name}': 'projects/P/secrets/S/versions/latest'}}.",
            )
            for name in self.env
            if _SECRET.search(name)
        ]
        found += [
            (
                f"{place} holds what looks like {kind}, and a job's record is no place for one.",
                "Put it into Secret Manager, and name it among the secrets: the command finds it in its environment.",
            )
            for place, text in self._texts()
            for kind, pattern in _SECRET_VALUES.items()
            if re.search(pattern, text)
        ]
        found += [
            (
                f"Secret {name} is not the version of a secret.",
                "Name it as projects/P/secrets/S/versions/latest; its value does not belong here.",
            )
            for name, version in self.secrets.items()
            if not _SECRET_VERSION.fullmatch(version)
        ]
        return found

    def _texts(self) -> Iterator[tuple[str, str]]:
        """What people write themselves, each with its place in words."""
        yield "The command", self.command
        yield "The setup", self.setup
        yield from ((f"The environment variable {name}", value) for name, value in self.env.items())
        yield from (("A requirement", requirement) for requirement in self.requirements)

    def to_json(self) -> dict[str, Any]:
        """As a document."""
        return {"version": 1, **asdict(self)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """From a document; fields of later versions are left out."""
        values = {name.name: document[name.name] for name in fields(cls) if name.name in document}
        known = {name.name for name in fields(Limits)}
        limits = {name: value for name, value in document.get("limits", {}).items() if name in known}
        limits["no_restart_codes"] = tuple(limits.get("no_restart_codes", ()))
        values["limits"] = Limits(**limits)
        values["requirements"] = tuple(values.get("requirements", ()))
        return cls(**values)
