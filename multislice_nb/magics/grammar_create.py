"""`%multislice create`: the flags of `gcloud compute tpus queued-resources create`, and ours."""

from __future__ import annotations

from multislice_nb.magics.arguments import Argument, Subcommand, pairs, words
from multislice_nb.magics.shared import (
    ACCELERATOR_TYPE,
    NETWORK,
    NODE_COUNT,
    RESERVED,
    RUNTIME_VERSION,
    SERVICE_ACCOUNT,
    SPOT,
    SUBNETWORK,
    VALID_UNTIL_DURATION,
    ZONE,
)

__all__ = ["CREATE"]

_SLICES = (
    ACCELERATOR_TYPE.but(excludes="shape"),
    Argument(
        name="type",
        flags=("--type",),
        values="types",
        help="Generation, with --topology instead of --accelerator-type",
        excludes="shape",
    ),
    Argument(
        name="topology", flags=("--topology",), values="topologies", help="Chips along each axis, as 2x2x2"
    ),
    RUNTIME_VERSION,
    NODE_COUNT.but(excludes="node"),
    Argument(name="node_id", flags=("--node-id",), help="Name of the one slice", excludes="node"),
    Argument(
        name="node_prefix",
        flags=("--node-prefix",),
        metavar="PREFIX",
        help="Slices are named PREFIX-0, PREFIX-1, …",
    ),
    Argument(
        name="force", flags=("--force",), switch=True, help="Accept a runtime version made for another type"
    ),
)

_WHERE = (
    Argument(name="project", flags=("--project",), help="Project id; the connection's if left out"),
    ZONE.but(excludes="where"),
    SPOT,
    RESERVED,
    Argument(
        name="best_effort",
        flags=("--best-effort",),
        switch=True,
        help="Best effort capacity (v2alpha1)",
        excludes="capacity",
    ),
    Argument(name="reservation", flags=("--reservation",), help="Name of a reservation"),
    Argument(
        name="reservation_host",
        flags=("--reservation-host",),
        metavar="HOST",
        help="Who holds a shared reservation, as projects/other",
    ),
    Argument(name="guaranteed", flags=("--guaranteed",), switch=True, help="Only at the guaranteed tier"),
)

_WORKERS = (
    NETWORK,
    SUBNETWORK,
    Argument(name="internal_ips", flags=("--internal-ips",), switch=True, help="No external addresses"),
    Argument(name="tags", flags=("--tags",), convert=words, help="Network tags, as a,b"),
    Argument(name="labels", flags=("--labels",), convert=pairs, metavar="KEY=VALUE,…", help="Labels"),
    Argument(
        name="metadata",
        flags=("--metadata",),
        convert=pairs,
        metavar="KEY=VALUE,…",
        help="Metadata of the workers",
    ),
    Argument(
        name="metadata_from_file",
        flags=("--metadata-from-file",),
        convert=pairs,
        metavar="KEY=FILE,…",
        values="files",
        help="Metadata whose values are files' texts",
    ),
    Argument(
        name="startup_script",
        flags=("--startup-script",),
        metavar="FILE",
        values="files",
        help="A script that every worker runs at every boot",
    ),
    SERVICE_ACCOUNT,
    Argument(name="scopes", flags=("--scopes",), convert=words, help="Its scopes"),
    Argument(name="shielded_secure_boot", flags=("--shielded-secure-boot",), switch=True, help="Secure boot"),
    Argument(name="description", flags=("--description",), metavar="TEXT", help="Free text"),
)

_WHEN = (
    VALID_UNTIL_DURATION.but(excludes="until"),
    Argument(
        name="valid_until_time",
        flags=("--valid-until-time",),
        metavar="TIME",
        help="Give up then",
        excludes="until",
    ),
    Argument(
        name="valid_after_duration",
        flags=("--valid-after-duration",),
        metavar="DURATION",
        help="Not before so long from now",
        excludes="after",
    ),
    Argument(
        name="valid_after_time",
        flags=("--valid-after-time",),
        metavar="TIME",
        help="Not before then",
        excludes="after",
    ),
    Argument(
        name="ttl",
        flags=("--ttl",),
        metavar="DURATION",
        help="Delete it after so long, as 8h, even when nobody is here",
    ),
    Argument(
        name="idle_limit",
        flags=("--idle-limit",),
        metavar="DURATION",
        help="Delete it when it was not used for so long",
    ),
    Argument(
        name="until_exit",
        flags=("--until-exit",),
        switch=True,
        help="Delete it when this kernel ends",
    ),
    Argument(
        name="zones",
        flags=("--zones",),
        convert=words,
        values="zones",
        help="Ask in all of these and keep the first that has capacity",
        excludes="where",
    ),
    Argument(
        name="capacities",
        flags=("--capacities",),
        convert=words,
        values="capacities",
        help="Ask for these kinds of capacity, as on-demand,spot",
        excludes="capacity",
    ),
    Argument(
        name="race",
        flags=("--race",),
        switch=True,
        help="With --zones or --capacities: all at once, which happens anyway",
        excludes="search",
    ),
    Argument(
        name="in_order",
        flags=("--in-order",),
        switch=True,
        help="With --zones or --capacities: one after the other",
        excludes="search",
    ),
    Argument(
        name="capacity_timeout",
        flags=("--capacity-timeout",),
        metavar="DURATION",
        help="With --zones or --capacities: how long to wait for capacity",
    ),
    Argument(
        name="recreate", flags=("--recreate",), switch=True, help="Delete what has the name already, first"
    ),
    Argument(name="wait", flags=("--wait",), switch=True, help="Wait until it is ACTIVE", excludes="wait"),
    Argument(
        name="no_wait",
        flags=("--async",),
        switch=True,
        help="Do not wait: what happens anyway",
        excludes="wait",
    ),
    Argument(
        name="dry_run",
        flags=("--dry-run",),
        switch=True,
        help="Check the request and show the gcloud command for it; nothing is sent",
    ),
    Argument(
        name="from_rest",
        flags=("--from-rest",),
        metavar="FILE",
        values="variables",
        help="The JSON body of a create call, or curl's line with it: a file, or a variable",
    ),
)

_NAME = Argument(
    name="name",
    metavar="NAME",
    help="Id of the queued resource; with a pasted command or body, instead of its own",
    unless=("request", "from_rest"),
)

_OURS = (
    "ttl", "idle_limit", "until_exit", "zones", "capacities", "race", "in_order", "capacity_timeout", "recreate", "wait",
    "dry_run",
)  # fmt: skip

CREATE = Subcommand(
    name="create",
    summary="Ask for slices: a queued resource. gcloud's own command can be pasted after it, or below %%.",
    arguments=(
        _NAME,
        *_SLICES,
        *_WHERE,
        *_WORKERS,
        *_WHEN,
    ),
    examples=(
        "demo --accelerator-type v4-16 --node-count 2 --wait",
        "big --accelerator-type v5litepod-256 --node-count 4 --spot --valid-until-duration 6h",
        "any --accelerator-type v4-16 --zones us-central2-b,us-east1-d --capacities on-demand,spot --ttl 8h",
        "--wait gcloud compute tpus queued-resources create demo --accelerator-type=v4-16 --node-count=2",
        "--from-rest body.json",
    ),
    body=Argument(
        name="request",
        help="A pasted gcloud compute tpus queued-resources create …, the JSON body of a create call, or curl's",
    ),
    pasted="gcloud",
    ours=_OURS,
    left="what was asked for by then may be there still: %multislice list shows it.",
    python="cloud.create('demo', accelerator_type='v4-16', node_count=2), cloud.request(…)",
)
