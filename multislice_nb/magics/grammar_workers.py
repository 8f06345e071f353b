"""The table's part about workers: files, what was left behind, and the mode in which every cell runs there."""

from __future__ import annotations

from multislice_nb.magics.arguments import Argument, Subcommand, ranks

__all__ = ["WORKERS"]

_CLUSTER = Argument(
    name="cluster",
    flags=("--cluster",),
    metavar="NAME",
    values="clusters",
    help="Another than the current one",
)
_RANKS = Argument(
    name="ranks", flags=("--ranks", "--targets"), convert=ranks, help="Only these workers, as 0,2-3"
)

WORKERS = (
    Subcommand(
        name="collect",
        summary="Get what a cell left that ran on the workers while no notebook was attached.",
        arguments=(
            Argument(
                name="name",
                metavar="NAME",
                values="clusters",
                help="An attached cluster; the current one if left out",
            ),
        ),
        examples=("",),
        python="cluster.collect()",
    ),
    Subcommand(
        name="push",
        summary="Bring a file or a folder to all workers; what they have already is not sent.",
        arguments=(
            Argument(name="source", metavar="PATH", required=True, values="files", help="On this machine"),
            Argument(
                name="destination",
                metavar="DESTINATION",
                help="On the workers, relative to the home folder; the source's own name if left out",
            ),
            _RANKS,
            Argument(
                name="delete",
                flags=("--delete",),
                switch=True,
                help="Remove there what the source does not have",
            ),
            Argument(
                name="no_gitignore",
                flags=("--no-gitignore",),
                switch=True,
                help="Send what .gitignore files exclude too",
            ),
            _CLUSTER,
        ),
        examples=("code", "data/train.npz inputs/ --ranks 0"),
        python="cluster.files.push('code')",
    ),
    Subcommand(
        name="pull",
        summary="Bring a file, a folder or what a pattern matches from all workers, a folder for each.",
        arguments=(
            Argument(
                name="source",
                metavar="PATTERN",
                required=True,
                help="On the workers, relative to the home folder",
            ),
            Argument(
                name="folder", metavar="FOLDER", values="files", help="On this machine; here if left out"
            ),
            _RANKS,
            _CLUSTER,
        ),
        examples=("trace.json profiles", "'logs/*.txt' --ranks 0"),
        python="cluster.files.pull('trace.json')",
    ),
    Subcommand(
        name="autocell",
        summary="Run every cell on the workers until this is turned off; cells that begin with % stay here.",
        arguments=(
            Argument(
                name="state",
                metavar="STATE",
                required=True,
                choices=("on", "off"),
                help="Whether cells go there",
            ),
        ),
        examples=("on", "off"),
        python="cluster.run(code)",
    ),
)
