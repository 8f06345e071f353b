"""The table's part about what workers have: packages, variables, and who holds their TPUs."""

from __future__ import annotations

from multislice_nb.magics.arguments import Argument, Subcommand, pairs
from multislice_nb.magics.shared import GRACE, REACHED

__all__ = ["ENVIRONMENT"]

ENVIRONMENT: tuple[Subcommand, ...] = (
    Subcommand(
        name="environment",
        summary="Show who holds the TPUs, lock files and ports of the workers, what is installed, what is free.",
        arguments=(REACHED,),
        examples=("",),
        python="cluster.environment.report()",
    ),
    Subcommand(
        name="environment usage",
        summary="Show HBM in use and duty cycle by libtpu's own metrics, memory and processor time, on all workers.",
        arguments=(REACHED,),
        examples=("",),
        python="cluster.environment.usage().frame",
    ),
    Subcommand(
        name="environment clean",
        summary="End our own left-over processes that hold a TPU, and remove stale lock files, on all workers.",
        arguments=(
            Argument(
                name="force",
                flags=("--force",),
                switch=True,
                help="End processes of others and other users too",
            ),
            GRACE,
            REACHED,
        ),
        examples=("",),
        left="some workers may be clean and others not: clean them again.",
        python="cluster.environment.clean()",
    ),
    Subcommand(
        name="environment set",
        summary="Set variables for engines and commands on all workers, in place of those set before.",
        arguments=(
            Argument(
                name="variables",
                metavar="KEY=VALUE,…",
                convert=pairs,
                unless=("file",),
                help="Names and values; they are kept there in a file that only their user may read",
            ),
            Argument(
                name="file",
                flags=("--file",),
                values="files",
                help="A file of this machine with NAME=value lines instead",
            ),
            REACHED,
        ),
        examples=("LIBTPU_INIT_ARGS=--xla_tpu_enable_megascale_barrier=true", "--file .env"),
        python="cluster.environment.set({'NAME': 'value'})",
    ),
    Subcommand(
        name="environment variables",
        summary="Name the variables that were set on the workers; values are shown with --values only.",
        arguments=(
            Argument(
                name="values", flags=("--values",), switch=True, help="Show values, which may be secrets"
            ),
            REACHED,
        ),
        examples=("",),
        python="cluster.environment.variables()",
    ),
    Subcommand(
        name="install",
        summary="Add packages on all workers, in the same versions, each checked by its hash.",
        arguments=(
            Argument(
                name="packages",
                metavar="PACKAGE",
                many=True,
                unless=("requirements",),
                help="As einops or flax==0.12",
            ),
            Argument(
                name="requirements",
                flags=("--requirements", "-r"),
                metavar="FILE",
                values="files",
                help="A requirements file of this machine",
            ),
            Argument(
                name="upgrade",
                flags=("--upgrade",),
                switch=True,
                help="Packages that the engines have may come in another version; then restart",
            ),
            REACHED,
        ),
        examples=("einops", "-r requirements.txt"),
        left="some workers may have it and others not: install it again.",
        python="cluster.environment.install('einops')",
    ),
)
