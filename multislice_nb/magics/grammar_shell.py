"""The table's part about the workers' files and shells: push, pull, commands, what runs detached."""

from __future__ import annotations

from functools import partial

from multislice_nb.magics.arguments import Argument, Subcommand, count, pairs
from multislice_nb.magics.shared import GRACE, OUTPUT, RANKS, REACHED, TARGETS, TIMEOUT

__all__ = ["SHELL"]

_COMMAND = Argument(
    name="name", metavar="NAME", required=True, help="Id or name of a command that `sh --detach` started"
)

_SH = Subcommand(
    name="sh",
    summary="Run a shell command on every worker at once; as %%multislice sh, the cell is a script.",
    arguments=(
        *TARGETS,
        TIMEOUT,
        GRACE.but(help="What it gets elsewhere once it has failed on one worker"),
        Argument(name="cwd", flags=("--cwd",), metavar="FOLDER", help="Where it runs, below the home folder"),
        Argument(
            name="environment",
            flags=("--env",),
            convert=pairs,
            metavar="KEY=VALUE,…",
            help="Variables for this command",
        ),
        Argument(
            name="distributed",
            flags=("--distributed",),
            switch=True,
            help="With what jax.distributed.initialize() needs; detached commands have it anyway",
        ),
        Argument(
            name="output_directory",
            flags=("--output-directory",),
            metavar="FOLDER",
            values="files",
            help="Write what each worker printed to a file here too",
        ),
        Argument(
            name="detach",
            flags=("--detach", "-d"),
            switch=True,
            help="Start it and go on; it outlives this notebook",
        ),
        Argument(name="name", flags=("--name",), help="With --detach: what it is called"),
        Argument(
            name="folder",
            flags=("--folder",),
            values="files",
            help="With --detach: a folder from here that it runs in a copy of",
        ),
        OUTPUT,
        REACHED,
        Argument(
            name="command",
            metavar="COMMAND",
            rest=True,
            required=True,
            help="All that follows the flags, for bash; our flags come before it",
        ),
    ),
    body=Argument(name="command", help="A script for bash, in which nothing is replaced here"),
    examples=("hostname", "--ranks 0 --timeout 60 ls -la", "--detach --name train python3 train.py"),
    python="cluster.shell.run('hostname'), cluster.shell.start('python3 train.py')",
)

SHELL: tuple[Subcommand, ...] = (
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
            RANKS,
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
            REACHED,
        ),
        examples=("code", "data/train.npz inputs/ --ranks 0"),
        left="a worker has all of it or what it had before: push it again.",
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
            RANKS,
            REACHED,
        ),
        examples=("trace.json profiles", "'logs/*.txt' --ranks 0"),
        left="here is what had come whole by then: pull it again.",
        python="cluster.files.pull('trace.json')",
    ),
    _SH,
    Subcommand(
        name="ps",
        summary="List detached shell commands and how they stand; those of earlier notebooks too.",
        arguments=(REACHED,),
        examples=("",),
        python="cluster.shell.detached()",
    ),
    Subcommand(
        name="logs",
        summary="Show what a detached shell command has printed.",
        arguments=(
            _COMMAND,
            Argument(name="follow", flags=("--follow", "-f"), switch=True, help="Go on until it has ended"),
            Argument(
                name="tail",
                flags=("--tail",),
                convert=partial(count, least=0),
                metavar="BYTES",
                help="The last of each stream; 0 for all",
            ),
            REACHED,
        ),
        examples=("train", "train --follow"),
        left="the command goes on: %multislice ps shows it.",
        python="cluster.shell.find('train').output()",
    ),
    Subcommand(
        name="stop",
        summary="End a detached shell command on all workers, with all that it started.",
        arguments=(
            _COMMAND,
            GRACE,
            REACHED,
        ),
        examples=("train",),
        left="it may run on some workers still: %multislice ps shows where.",
        python="cluster.shell.find('train').stop()",
    ),
)
