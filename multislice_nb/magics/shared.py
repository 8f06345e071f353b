"""Rows that stand in several parts of the table: a flag means one thing wherever it is written."""

from __future__ import annotations

from multislice_nb.magics.arguments import Argument, integer, ranks, seconds

__all__ = [
    "ACCELERATOR_TYPE",
    "EVERY_ZONE",
    "GRACE",
    "NAME",
    "NETWORK",
    "NODE_COUNT",
    "OUTPUT",
    "RANKS",
    "REACHED",
    "RESERVED",
    "RUNTIME_VERSION",
    "SERVICE_ACCOUNT",
    "SPOT",
    "SUBNETWORK",
    "TARGETS",
    "TIMEOUT",
    "VALID_UNTIL_DURATION",
    "ZONE",
]

# Which queued resource, and where
NAME = Argument(name="name", metavar="NAME", required=True, values="queued_resources", help="Queued resource")
ZONE = Argument(name="zone", flags=("--zone",), values="zones", help="Zone; the connection's if left out")
EVERY_ZONE = ZONE.but(help="Zone; - for all; the connection's if left out")

# What slices are
ACCELERATOR_TYPE = Argument(
    name="accelerator_type",
    flags=("--accelerator-type",),
    values="accelerator_types",
    help="What each slice is, as v4-16",
)
RUNTIME_VERSION = Argument(
    name="runtime_version",
    flags=("--runtime-version",),
    values="runtime_versions",
    help="Software of the workers; the type's own if left out",
)
NODE_COUNT = Argument(
    name="node_count", flags=("--node-count",), convert=integer, help="Slices, 1 to 256; one if left out"
)
SPOT = Argument(
    name="spot",
    flags=("--spot",),
    switch=True,
    help="Spot capacity: cheaper, can be preempted",
    excludes="capacity",
)
RESERVED = Argument(
    name="reserved", flags=("--reserved",), switch=True, help="Reserved capacity", excludes="capacity"
)
NETWORK = Argument(name="network", flags=("--network",), help="VPC network")
SUBNETWORK = Argument(name="subnetwork", flags=("--subnetwork",), help="VPC subnetwork")
SERVICE_ACCOUNT = Argument(
    name="service_account",
    flags=("--service-account",),
    metavar="EMAIL",
    help="The workers' service account",
)
VALID_UNTIL_DURATION = Argument(
    name="valid_until_duration",
    flags=("--valid-until-duration",),
    metavar="DURATION",
    help="Give up waiting for capacity after so long, as 6h",
)

# Which workers, and what becomes of what they print
RANKS = Argument(
    name="ranks", flags=("--ranks", "--targets", "-t"), convert=ranks, help="Only these workers, as 0,2-3"
)
TARGETS = (
    RANKS,
    Argument(
        name="slices", flags=("--slices",), convert=ranks, help="Only workers of these slices, as 0,2-3"
    ),
    Argument(
        name="workers", flags=("--workers",), convert=ranks, help="Only these workers of each slice, as 0"
    ),
)
REACHED = Argument(
    name="cluster",
    flags=("--cluster",),
    metavar="NAME",
    values="queued_resources",
    help="Another than the current one; need not be attached",
)
OUTPUT = Argument(
    name="output",
    flags=("-o", "--output"),
    metavar="NAME",
    values="variables",
    help="Keep the result in this variable, and do not show it",
)
TIMEOUT = Argument(
    name="timeout",
    flags=("--timeout",),
    convert=seconds,
    metavar="SECONDS",
    help="Stop it everywhere after so long",
)
GRACE = Argument(
    name="grace",
    flags=("--grace",),
    convert=seconds,
    metavar="SECONDS",
    help="Between asking a process to end and killing it",
)
