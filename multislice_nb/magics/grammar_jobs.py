"""The table's part about jobs, which run unattended and survive preemption."""

from __future__ import annotations

from multislice_nb.magics.arguments import Argument, Subcommand, integer, pairs, words

__all__ = ["JOBS"]

_STORE = Argument(
    name="store",
    flags=("--store",),
    metavar="PLACE",
    help="Where jobs are kept: gs://bucket/folder, or a folder with the emulator",
)

JOBS = (
    Subcommand(
        name="submit",
        summary="Run a command on every worker of new slices, unattended, to its end.",
        arguments=(
            Argument(
                name="name", metavar="NAME", required=True, help="Of the job and of its queued resource"
            ),
            Argument(name="command", flags=("--command",), required=True, help="A shell command, in quotes"),
            Argument(
                name="accelerator_type",
                flags=("--accelerator-type",),
                required=True,
                values="accelerator_types",
                help="What each slice is, as v4-16",
            ),
            Argument(name="node_count", flags=("--node-count",), convert=integer, help="Slices"),
            Argument(name="folder", flags=("--folder",), values="files", help="The folder of the code"),
            Argument(
                name="requirements",
                flags=("--requirements",),
                convert=words,
                help="Packages, as jax,flax==0.12",
            ),
            Argument(name="setup", flags=("--setup",), metavar="COMMAND", help="Prepares each worker once"),
            Argument(name="env", flags=("--env",), convert=pairs, metavar="KEY=VALUE,…", help="Environment"),
            Argument(name="spot", flags=("--spot",), switch=True, help="Spot capacity"),
            _STORE,
            Argument(name="dry_run", flags=("--dry-run",), switch=True, help="Only say what would be done"),
        ),
        examples=(
            "train --command 'python3 train.py' --folder code --accelerator-type v4-16 --node-count 2",
        ),
        python="ms.jobs.submit('train', 'python3 train.py', folder='code', accelerator_type='v4-16')",
    ),
    Subcommand(
        name="jobs",
        summary="List jobs, the newest first.",
        arguments=(_STORE,),
        examples=("",),
        python="ms.jobs.list()",
    ),
    Subcommand(
        name="job",
        summary="Look at a job, wait for it, read its logs, get its results, cancel, retry or remove it.",
        arguments=(
            Argument(
                name="action",
                metavar="ACTION",
                required=True,
                choices=("status", "wait", "logs", "errors", "results", "cancel", "retry", "remove"),
                help="What to do",
            ),
            Argument(name="name", metavar="NAME", required=True, help="The job"),
            _STORE,
            Argument(
                name="lines", flags=("--lines",), convert=integer, help="Of logs: how many of the last lines"
            ),
            Argument(name="folder", flags=("--folder",), values="files", help="Of results: where they go"),
        ),
        examples=("status train", "logs train --lines 50", "results train --folder results"),
        python="ms.jobs.get('train').wait()",
    ),
)
