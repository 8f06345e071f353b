"""The table's part about jobs, which run unattended and survive preemption."""

from __future__ import annotations

from multislice_nb.magics.arguments import Argument, Subcommand, count, integer, pairs, ranks, words
from multislice_nb.magics.shared import (
    ACCELERATOR_TYPE,
    NAME,
    NETWORK,
    NODE_COUNT,
    RANKS,
    RESERVED,
    RUNTIME_VERSION,
    SERVICE_ACCOUNT,
    SPOT,
    SUBNETWORK,
    VALID_UNTIL_DURATION,
    ZONE,
)

__all__ = ["JOBS"]

_STORE = Argument(
    name="store",
    flags=("--store",),
    metavar="PLACE",
    help="Where jobs are kept: gs://bucket/folder, or a folder with the emulator",
)
_NAME = NAME.but(help="The job")

_CODE = (
    Argument(
        name="command",
        metavar="COMMAND",
        rest=True,
        unless=("notebook", "cells"),
        help="All that follows the flags, for a shell in the folder of the code",
    ),
    Argument(
        name="notebook",
        flags=("--notebook",),
        metavar="FILE",
        values="files",
        help="Execute this notebook on every worker instead of a command",
        excludes="what",
    ),
    Argument(
        name="cells",
        flags=("--cells",),
        convert=ranks,
        metavar="NUMBERS",
        help="Or these cells of this notebook, by their numbers in In[ ], as 3,5-7",
        excludes="what",
    ),
    Argument(
        name="parameters",
        flags=("--parameter", "-p"),
        named=True,
        help="A value for the notebook's cell tagged parameters; may be repeated",
    ),
    Argument(name="folder", flags=("--folder",), values="files", help="The folder of the code"),
    Argument(
        name="requirements", flags=("--requirements",), convert=words, help="Packages, as jax,flax==0.12"
    ),
    Argument(name="setup", flags=("--setup",), metavar="COMMAND", help="Prepares each worker once"),
    Argument(name="env", flags=("--env",), convert=pairs, metavar="KEY=VALUE,…", help="Environment"),
    Argument(
        name="secrets",
        flags=("--secrets",),
        convert=pairs,
        metavar="KEY=SECRET,…",
        help="Variables that the workers read from Secret Manager, as TOKEN=projects/…/versions/1",
    ),
)

_WHERE = (
    ACCELERATOR_TYPE.but(required=True),
    NODE_COUNT,
    ZONE,
    SPOT,
    RESERVED,
    RUNTIME_VERSION,
    NETWORK,
    SUBNETWORK,
    SERVICE_ACCOUNT,
    VALID_UNTIL_DURATION,
    Argument(
        name="time_limit", flags=("--time-limit",), metavar="DURATION", help="For the whole run, as 12h"
    ),
    Argument(
        name="max_restarts",
        flags=("--max-restarts",),
        convert=integer,
        metavar="COUNT",
        help="How often it is started again after a failure of its own",
    ),
    _STORE,
    Argument(name="dry_run", flags=("--dry-run",), switch=True, help="Only say what would be done"),
)

_MANIFEST = (
    _NAME,
    Argument(name="image", flags=("--image",), required=True, help="Container image with the command"),
    Argument(
        name="accelerator_type",
        flags=("--accelerator-type",),
        values="accelerator_types",
        help="Other slices than the job's, as tpu7x-32, which only GKE has",
    ),
    Argument(
        name="node_count",
        flags=("--node-count",),
        convert=integer,
        help="Another number of slices than the job's",
    ),
    Argument(name="namespace", flags=("--namespace",), help="Kubernetes namespace"),
    Argument(name="service_account", flags=("--service-account",), help="Kubernetes service account"),
    Argument(name="queue", flags=("--queue",), help="Local queue of Kueue"),
    _STORE,
)

_LOGS = (
    _NAME,
    Argument(name="follow", flags=("--follow", "-f"), switch=True, help="Go on until it has ended"),
    RANKS,
    Argument(name="attempt", flags=("--attempt",), convert=count, help="Only this attempt"),
    Argument(name="grep", flags=("--grep",), metavar="REGEX", help="Only lines that match"),
    Argument(
        name="errors", flags=("--errors",), switch=True, help="Only lines that look like errors, oldest first"
    ),
    Argument(
        name="supervisor",
        flags=("--supervisor",),
        switch=True,
        help="What the workers' supervisors logged instead: boots, restarts, the end",
    ),
    Argument(
        name="lines",
        flags=("--lines",),
        convert=count,
        help="The last so many, of errors the first; 200 if left out",
    ),
    _STORE,
)

JOBS: tuple[Subcommand, ...] = (
    Subcommand(
        name="job submit",
        summary="Run a command or a notebook on every worker of new slices, unattended, to its end.",
        arguments=(
            Argument(
                name="name", metavar="NAME", required=True, help="Of the job and of its queued resource"
            ),
            *_WHERE,
            *_CODE,
        ),
        body=Argument(name="command", help="A shell script, in which nothing is replaced here"),
        examples=(
            "train --accelerator-type v4-16 --node-count 2 --folder code python3 train.py",
            "night --accelerator-type v4-16 --notebook train.ipynb -p steps 1000",
        ),
        left="it may be submitted already: %multislice job list shows it.",
        python="ms.jobs.submit('train', 'python3 train.py', folder='code', accelerator_type='v4-16')",
    ),
    Subcommand(
        name="job list",
        summary="List jobs, the newest first, and clean up what is left of those that have ended.",
        arguments=(_STORE,),
        examples=("",),
        python="ms.jobs.list()",
    ),
    Subcommand(
        name="job status",
        summary="Show a job, its attempts and its workers.",
        arguments=(_NAME, _STORE),
        examples=("train",),
        python="ms.jobs.get('train').status()",
    ),
    Subcommand(
        name="job wait",
        summary="Wait until a job has ended and its slices are gone.",
        arguments=(
            _NAME,
            Argument(
                name="timeout",
                flags=("--timeout",),
                metavar="DURATION",
                help="As 2h; the job goes on when it passes",
            ),
            _STORE,
        ),
        examples=("train", "train --timeout 2h"),
        left="the job goes on.",
        python="ms.jobs.get('train').wait()",
    ),
    Subcommand(
        name="job logs",
        summary="Show the logs of a job's workers, in order of time.",
        arguments=_LOGS,
        examples=("train", "train --follow", "train --errors"),
        left="the job goes on.",
        python="ms.jobs.get('train').logs(), .errors()",
    ),
    Subcommand(
        name="job results",
        summary="Copy a job's results to a folder, one folder for each worker.",
        arguments=(
            _NAME,
            Argument(
                name="folder", metavar="FOLDER", values="files", help="Here; the job's name if left out"
            ),
            _STORE,
        ),
        examples=("train", "train results"),
        left="here is what had come by then: copy them again.",
        python="ms.jobs.get('train').results('results')",
    ),
    Subcommand(
        name="job cancel",
        summary="End a job: logs and results are kept, its slices are deleted.",
        arguments=(_NAME, _STORE),
        examples=("train",),
        left="it may be cancelled already: %multislice job status shows it.",
        python="ms.jobs.get('train').cancel().ending()",
    ),
    Subcommand(
        name="job retry",
        summary="Run a job again on new slices, from its last checkpoint.",
        arguments=(
            _NAME,
            Argument(
                name="node_count",
                flags=("--node-count",),
                convert=integer,
                help="On that many slices; as many as before if left out",
            ),
            _STORE,
        ),
        examples=("train", "train --node-count 4"),
        left="it may be submitted already: %multislice job list shows it.",
        python="ms.jobs.get('train').retry(node_count=4)",
    ),
    Subcommand(
        name="job remove",
        summary="Remove the record, logs, results and checkpoints of a job that has ended.",
        arguments=(_NAME, _STORE),
        examples=("train",),
        left="some of it may be there still: %multislice job list shows it; remove it again.",
        python="ms.jobs.get('train').remove()",
    ),
    Subcommand(
        name="job jobset",
        summary="Show the same job as a JobSet manifest for Multislice on GKE, where TPU7x is.",
        arguments=_MANIFEST,
        examples=(
            "train --image my-image:1",
            "train --image my-image:1 --accelerator-type tpu7x-32",
        ),
        python="ms.jobs.get('train').jobset('my-image:1')",
    ),
)
