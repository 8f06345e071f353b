"""The table's part about the machines of slices: watching them, maintenance, who may log in."""

from __future__ import annotations

from multislice_nb.magics.arguments import Argument, Subcommand, words
from multislice_nb.magics.shared import EVERY_ZONE, NAME, ZONE

__all__ = ["SLICES"]

SLICES: tuple[Subcommand, ...] = (
    Subcommand(
        name="nodes",
        summary="List the slices of a zone, those outside queued resources included.",
        arguments=(EVERY_ZONE,),
        examples=("", "--zone -"),
        python="cloud.nodes()",
    ),
    Subcommand(
        name="watch",
        summary="Follow a queued resource through its states until it is gone or this is interrupted.",
        arguments=(
            NAME,
            ZONE,
            Argument(
                name="nodes",
                flags=("--nodes",),
                switch=True,
                help="Its slices instead: preempted, in maintenance, repaired; until this is interrupted",
            ),
        ),
        examples=("demo", "demo --nodes"),
        python="qr.watch(), qr.watch_nodes()",
    ),
    Subcommand(
        name="maintenance",
        summary="Show what maintenance is coming to the slices, or have it done now.",
        arguments=(
            NAME,
            ZONE,
            Argument(
                name="perform",
                flags=("--perform",),
                switch=True,
                help="Do it now, which restarts the workers of those slices",
            ),
            Argument(
                name="node_ids",
                flags=("--node-names",),
                convert=words,
                metavar="NODES",
                help="With --perform: these slices; all that have maintenance coming if left out",
            ),
        ),
        examples=("demo", "demo --perform"),
        left="maintenance that has begun goes on by itself: %multislice nodes shows the slices.",
        python="qr.maintenance(), qr.perform_maintenance()",
    ),
    Subcommand(
        name="authorize-ssh",
        summary="Let somebody else log in to every worker with a key of theirs.",
        arguments=(
            NAME,
            Argument(name="user", metavar="USER", required=True, help="Their user name on the workers"),
            Argument(
                name="key",
                metavar="FILE",
                required=True,
                values="files",
                help="Their public key, as id_ed25519.pub",
            ),
            ZONE,
        ),
        examples=("demo alice alice.pub",),
        python="qr.authorize_ssh('alice', 'ssh-ed25519 …')",
    ),
    Subcommand(
        name="guest-attributes",
        summary="Show what the workers of a slice have published, such as their host keys.",
        arguments=(
            Argument(name="node", metavar="NODE", required=True, help="Name of the slice, as demo-0"),
            Argument(
                name="query_path",
                flags=("--query-path",),
                metavar="PATH",
                help="A namespace with a / behind it, or a key; hostkeys/ if left out",
            ),
            ZONE,
        ),
        examples=("demo-0",),
        python="cloud.guest_attributes('demo-0')",
    ),
    Subcommand(
        name="touch",
        summary="Say that a queued resource is in use, which its --idle-limit counts from.",
        arguments=(NAME, ZONE),
        examples=("demo",),
        python="qr.touch()",
    ),
)
