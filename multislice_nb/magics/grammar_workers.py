"""The table's part about attached workers: attach, what was left there, the life of a gang, and cells."""

from __future__ import annotations

from multislice_nb.magics.arguments import Argument, Subcommand, seconds
from multislice_nb.magics.shared import NAME, OUTPUT, RANKS, REACHED, TARGETS, TIMEOUT, ZONE

__all__ = ["CELL", "WORKERS"]

_CLUSTER = Argument(
    name="name", metavar="NAME", values="clusters", help="An attached cluster; the current one if left out"
)
_ANOTHER = REACHED.but(values="clusters", help="Another attached cluster than the current one")

CELL = Subcommand(
    name="cell",
    cell=True,
    summary="Run the cell on every worker of the attached cluster, as one gang operation.",
    arguments=(
        RANKS.but(help="Only these workers, as 0,2-3; a collective in the cell waits for the others"),
        *TARGETS[1:],
        OUTPUT,
        TIMEOUT,
        Argument(
            name="no_raise",
            flags=("--no-raise",),
            switch=True,
            help="Go on when it fails on a worker: the failure is shown, and with -o kept in the result",
        ),
        Argument(
            name="noblock",
            flags=("--noblock",),
            switch=True,
            help="Do not wait: the result is a handle to look at, wait for or cancel",
            excludes="block",
        ),
        Argument(
            name="block",
            flags=("--block",),
            switch=True,
            help="Wait for its end: what happens anyway",
            excludes="block",
        ),
        Argument(
            name="local",
            flags=("--local",),
            switch=True,
            help="Run it here too, first; if it fails, only here",
        ),
        Argument(
            name="group_outputs",
            flags=("--group-outputs",),
            choices=("type", "engine"),
            help="type: what was printed, then values; engine: all of a worker together",
        ),
        Argument(
            name="profile",
            flags=("--profile",),
            switch=True,
            help="Trace it with jax.profiler on all workers, and tell compute from collectives",
        ),
        Argument(
            name="profile_folder",
            flags=("--profile-folder",),
            metavar="FOLDER",
            values="files",
            help="With --profile: what gets the traces here; profiles if left out",
        ),
        _ANOTHER,
    ),
    examples=("", "--ranks 0,2-3 --timeout 60", "--slices 1 -o result", "--noblock -o handle", "--profile"),
    python="cluster.run(code), cluster.submit(code), cluster.run(code, profile=True).profile",
)

WORKERS: tuple[Subcommand, ...] = (
    Subcommand(
        name="attach",
        summary="Attach to all workers: find the gang of engines that runs there, or start one.",
        arguments=(
            NAME,
            ZONE,
            Argument(
                name="deadline",
                flags=("--deadline",),
                convert=seconds,
                metavar="SECONDS",
                help="For SSH to answer on all workers, and again for the gang to start",
            ),
            Argument(
                name="recover",
                flags=("--recover",),
                switch=True,
                help="Wait for slices that are being repaired or reset, and start the gang anew if it is broken",
            ),
            Argument(
                name="repair_deadline",
                flags=("--repair-deadline",),
                convert=seconds,
                metavar="SECONDS",
                help="For the repair; 1800 if left out",
            ),
            Argument(
                name="auto_restart",
                flags=("--auto-restart",),
                switch=True,
                help="After a cell that breaks the gang, start it anew at once; variables are lost",
            ),
            Argument(
                name="silence",
                flags=("--silence",),
                convert=seconds,
                metavar="SECONDS",
                help="Say where the workers stand when none was heard for so long; 300 if left out, 0 for never",
            ),
            Argument(
                name="abort_on_hang",
                flags=("--abort-on-hang",),
                switch=True,
                help="Stop a cell then",
            ),
        ),
        examples=("demo", "demo --recover", "demo --silence 120 --abort-on-hang --auto-restart"),
        left="nothing is attached by it; the next %multislice attach finds the gang that runs there, or starts one.",
        python="ms.attach(qr, recover=True)",
    ),
    Subcommand(
        name="status",
        summary="Show the connection, the queued resources and the attached clusters.",
        examples=("",),
        python="cloud.list(), ms.cluster.clusters()",
    ),
    Subcommand(
        name="use",
        summary="Make another attached cluster the one that cells run on.",
        arguments=(_CLUSTER.but(required=True, help="An attached cluster"),),
        examples=("demo",),
        python="ms.cluster.attached('demo')",
    ),
    Subcommand(
        name="collect",
        summary="Get what a cell left that ran on the workers while no notebook was attached.",
        arguments=(
            _CLUSTER,
            OUTPUT,
        ),
        examples=("", "-o result"),
        left="the cell goes on: %multislice collect gets its end.",
        python="cluster.collect()",
    ),
    Subcommand(
        name="define",
        summary="Define variables of this notebook in the cells of every worker: numbers, texts, arrays.",
        arguments=(
            Argument(
                name="names",
                metavar="NAME",
                required=True,
                many=True,
                values="variables",
                help="Variables of this notebook",
            ),
            _ANOTHER,
        ),
        examples=("steps", "batch steps table"),
        python="cluster.define(steps=100)",
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
    Subcommand(
        name="interrupt",
        summary="Interrupt what runs on the workers.",
        arguments=(_CLUSTER,),
        examples=("",),
        python="cluster.interrupt()",
    ),
    Subcommand(
        name="restart",
        summary="End the engines on all workers, blocked ones too, and start a new gang; variables are lost.",
        arguments=(_CLUSTER,),
        examples=("",),
        left="the earlier gang may be gone, with its variables: %multislice restart starts a new one.",
        python="cluster.restart()",
    ),
    Subcommand(
        name="detach",
        summary="Let go of the workers; engines, variables and a running cell stay for the next attach.",
        arguments=(
            _CLUSTER,
            Argument(
                name="shutdown", flags=("--shutdown",), switch=True, help="End the engines on the workers too"
            ),
        ),
        examples=("", "--shutdown"),
        python="cluster.detach(), cluster.shutdown()",
    ),
)
