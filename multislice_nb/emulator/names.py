"""Resource names: parsed strictly, because ids end up in paths and shells."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from multislice_nb.emulator.rpc import invalid

# Queued resource ids follow RFC 1035 labels; node ids the pattern that the API documents for them.
_QUEUED_RESOURCE_ID = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")
_NODE_ID = re.compile(r"[A-Za-z0-9_.~+%-]{1,128}")
_PROJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:-]{0,98}")
_LOCATION = re.compile(r"[a-z0-9][a-z0-9-]{0,61}|-")
_SAFE_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")


@dataclass(frozen=True)
class Parent:
    """The scope of a collection: a project and a location, which may be "-" where one is listed."""

    project: str
    location: str

    @property
    def name(self) -> str:
        """The full name."""
        return f"projects/{self.project}/locations/{self.location}"

    def child(self, collection: str, resource_id: str) -> str:
        """The full name of something in a collection here."""
        return f"{self.name}/{collection}/{resource_id}"

    def covers(self, other: Parent) -> bool:
        """Whether a list of this scope shows what is in the other."""
        return self.project == other.project and self.location in {"-", other.location}


def parse_project(name: str) -> str:
    """The project of "projects/P"."""
    parts = name.split("/")
    if len(parts) != 2 or parts[0] != "projects" or not _PROJECT.fullmatch(parts[1]):
        raise invalid("name", f"Invalid resource name: {name!r}; expected projects/PROJECT.")
    return parts[1]


def parse_parent(name: str, field: str = "parent") -> Parent:
    """Parse "projects/P/locations/L"."""
    parts = name.split("/")
    shape_ok = len(parts) == 4 and parts[0] == "projects" and parts[2] == "locations"
    if not shape_ok or not _PROJECT.fullmatch(parts[1]) or not _LOCATION.fullmatch(parts[3]):
        raise invalid(
            field, f"Invalid resource name: {name!r}; expected projects/PROJECT/locations/LOCATION."
        )
    return Parent(parts[1], parts[3])


def parse_name(name: str, collection: str, field: str = "name") -> tuple[Parent, str]:
    """Parse "projects/P/locations/L/COLLECTION/ID" into its parent and id."""
    parts = name.split("/")
    if len(parts) != 6 or parts[4] != collection or not parts[5]:
        expected = f"projects/PROJECT/locations/LOCATION/{collection}/ID"
        raise invalid(field, f"Invalid resource name: {name!r}; expected {expected}.")
    return parse_parent("/".join(parts[:4]), field), parts[5]


def check_queued_resource_id(value: str, field: str = "queued_resource_id") -> str:
    """The id if it is well formed.

    Raises:
        ApiError: INVALID_ARGUMENT otherwise.
    """
    if not _QUEUED_RESOURCE_ID.fullmatch(value):
        pattern = _QUEUED_RESOURCE_ID.pattern
        raise invalid(field, f"Invalid queued resource id {value!r}: it must match {pattern}.")
    return value


def check_node_id(value: str, field: str = "node_id") -> str:
    """The id if it is well formed and no folder of its own meaning.

    Raises:
        ApiError: INVALID_ARGUMENT otherwise.
    """
    if not _NODE_ID.fullmatch(value) or value in {".", ".."}:
        raise invalid(field, f"Invalid node id {value!r}: it must match ^[A-Za-z0-9_.~+%-]+$.")
    return value


def folder_name(text: str) -> str:
    """A folder name for any id: the id itself where it is short and harmless, else a digest of it."""
    if _SAFE_FOLDER.fullmatch(text):
        return text
    return "x" + hashlib.sha256(text.encode()).hexdigest()[:16]
