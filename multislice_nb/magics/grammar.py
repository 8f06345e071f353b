"""The one table of `%multislice`: parser, help, completion and the reference in the README come from it."""

from __future__ import annotations

from multislice_nb.magics.arguments import Argument, Subcommand, number, ranks, words
from multislice_nb.magics.grammar_create import CREATE
from multislice_nb.magics.grammar_jobs import JOBS
from multislice_nb.magics.grammar_planning import PLANNING
from multislice_nb.magics.grammar_workers import WORKERS

__all__ = ["CELL", "SUBCOMMANDS", "SYNONYMS", "subcommand"]

_NAME = Argument(
    name="name", metavar="NAME", required=True, values="queued_resources", help="Queued resource"
)
_NAMES = Argument(
    name="names",
    metavar="NAME",
    required=True,
    many=True,
    values="queued_resources",
    help="Queued resources",
)
_CLUSTER = Argument(
    name="name", metavar="NAME", values="clusters", help="An attached cluster; the current one if left out"
)
_PROJECT = Argument(name="project", flags=("--project",), help="Google Cloud project id")
_ZONE = Argument(name="zone", flags=("--zone",), values="zones", help="Zone, as us-central2-b")
_EVERY_ZONE = Argument(
    name="zone", flags=("--zone",), values="zones", help="Zone; - for all; the connection's if left out"
)

CELL = Subcommand(
    name="cell",
    cell=True,
    summary="Run the cell on every worker of the attached cluster, as one gang operation.",
    arguments=(
        Argument(
            name="ranks",
            flags=("--ranks", "--targets", "-t"),
            convert=ranks,
            help="Only these workers, as 0,2-3; a collective in the cell waits for the others",
        ),
        Argument(
            name="slices", flags=("--slices",), convert=ranks, help="Only workers of these slices, as 0,2-3"
        ),
        Argument(
            name="workers", flags=("--workers",), convert=ranks, help="Only these workers of each slice, as 0"
        ),
        Argument(
            name="output",
            flags=("-o", "--output"),
            metavar="NAME",
            values="variables",
            help="Keep the result in this variable, and do not show it",
        ),
        Argument(
            name="timeout",
            flags=("--timeout",),
            convert=number,
            metavar="SECONDS",
            help="Stop the cell everywhere after so long",
        ),
        Argument(
            name="group_outputs",
            flags=("--group-outputs",),
            choices=("type", "engine"),
            help="type: what was printed, then values; engine: all of a worker together",
        ),
        Argument(
            name="cluster",
            flags=("--cluster",),
            metavar="NAME",
            values="clusters",
            help="Another attached cluster than the current one",
        ),
    ),
    examples=("", "--ranks 0,2-3 --timeout 60", "-o result"),
    python="cluster.run(code)",
)

SUBCOMMANDS: tuple[Subcommand, ...] = (
    Subcommand(
        name="connect",
        summary="Connect to a project's Cloud TPUs, or to the emulator on this machine when there is no project.",
        arguments=(
            _PROJECT,
            _ZONE,
            Argument(name="endpoint", flags=("--endpoint",), help="Another host of the Cloud TPU API"),
            Argument(
                name="emulator",
                flags=("--emulator",),
                switch=True,
                help="The emulator, whatever is configured",
                excludes="where",
            ),
            Argument(
                name="no_emulator",
                flags=("--no-emulator",),
                switch=True,
                help="Google Cloud, or an error",
                excludes="where",
            ),
        ),
        examples=("", "--project my-project --zone us-central2-b"),
        python="ms.connect()",
    ),
    CREATE,
    Subcommand(
        name="list",
        summary="List queued resources.",
        arguments=(_EVERY_ZONE,),
        examples=("", "--zone -"),
        python="cloud.list()",
    ),
    Subcommand(
        name="describe",
        summary="Show a queued resource, its timeline and its slices.",
        arguments=(_NAME, _ZONE),
        examples=("demo",),
        python="cloud.get('demo').nodes()",
    ),
    Subcommand(
        name="wait",
        summary="Wait until a queued resource is ACTIVE and its slices are READY.",
        arguments=(
            _NAME,
            _ZONE,
            Argument(
                name="timeout",
                flags=("--timeout",),
                metavar="DURATION",
                help="For everything, as 2h; the request is kept when it passes",
            ),
            Argument(
                name="capacity_timeout",
                flags=("--capacity-timeout",),
                metavar="DURATION",
                help="For capacity to be found; the request is deleted when it passes",
            ),
            Argument(
                name="boot_timeout",
                flags=("--boot-timeout",),
                metavar="DURATION",
                help="From PROVISIONING on; the request is kept when it passes",
            ),
            Argument(
                name="cancel_on_interrupt",
                flags=("--cancel-on-interrupt",),
                switch=True,
                help="Delete the request when this is interrupted",
            ),
        ),
        examples=("demo", "demo --capacity-timeout 2h"),
        python="qr.wait()",
    ),
    Subcommand(
        name="attach",
        summary="Attach to all workers: find the gang of engines that runs there, or start one.",
        arguments=(
            _NAME,
            _ZONE,
            Argument(
                name="deadline",
                flags=("--deadline",),
                convert=number,
                metavar="SECONDS",
                help="For SSH to answer on all workers, and again for the gang to start",
            ),
        ),
        examples=("demo",),
        python="ms.attach(qr)",
    ),
    Subcommand(
        name="status",
        summary="Show the connection, the queued resources and the attached clusters.",
        examples=("",),
        python="cloud.list(), cluster",
    ),
    Subcommand(
        name="use",
        summary="Make another attached cluster the one that cells run on.",
        arguments=(
            Argument(
                name="name", metavar="NAME", required=True, values="clusters", help="An attached cluster"
            ),
        ),
        examples=("demo",),
        python="multislice_nb.cluster.attached('demo')",
    ),
    Subcommand(
        name="reset",
        summary="Restart all workers of a queued resource; local files stay, variables are lost.",
        arguments=(_NAME, _ZONE),
        examples=("demo",),
        python="qr.reset()",
    ),
    Subcommand(
        name="restart",
        summary="End the engines on all workers, blocked ones too, and start a new gang; variables are lost.",
        arguments=(_CLUSTER,),
        examples=("",),
        python="cluster.restart()",
    ),
    Subcommand(
        name="interrupt",
        summary="Interrupt what runs on the workers.",
        arguments=(_CLUSTER,),
        examples=("",),
        python="cluster.interrupt()",
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
    Subcommand(
        name="delete",
        summary="Delete queued resources and their slices, and wait until they are gone.",
        arguments=(
            _NAMES,
            _ZONE,
            Argument(
                name="force",
                flags=("--force",),
                switch=True,
                help="Delete their slices with them: what happens anyway",
                excludes="force",
            ),
            Argument(
                name="no_force",
                flags=("--no-force",),
                switch=True,
                help="Refuse while there are slices",
                excludes="force",
            ),
            Argument(name="no_wait", flags=("--async",), switch=True, help="Do not wait until they are gone"),
            Argument(
                name="quiet",
                flags=("--quiet", "-q"),
                switch=True,
                help="For pasted gcloud lines: nothing is asked",
            ),
        ),
        examples=("demo", "demo other --async"),
        python="qr.delete()",
    ),
    Subcommand(
        name="recreate",
        summary="Delete a queued resource with its slices, wait until it is gone, and ask for the same again.",
        arguments=(_NAME, _ZONE),
        examples=("demo",),
        python="qr.recreate()",
    ),
    Subcommand(
        name="reclaim",
        summary="Find what was forgotten and holds quota; deletes what is named after --delete, nothing else.",
        arguments=(
            _EVERY_ZONE,
            Argument(
                name="delete",
                flags=("--delete",),
                convert=words,
                metavar="NAMES",
                values="queued_resources",
                help="Delete these of the list, as a,b; all: those that are certainly of no use",
            ),
        ),
        examples=("", "--delete all"),
        python="cloud.reclaim()",
    ),
    *WORKERS,
    *PLANNING,
    *JOBS,
    Subcommand(
        name="panel",
        summary="Open the control panel: queued resources and workers, live.",
        examples=("",),
        python="ms.panel()",
    ),
    Subcommand(
        name="emulator",
        summary="Show, start or stop the Cloud TPU emulator on this machine.",
        arguments=(
            Argument(
                name="action",
                metavar="ACTION",
                required=True,
                choices=("status", "start", "stop"),
                help="What to do",
            ),
        ),
        examples=("status", "stop"),
        python="python -m multislice_nb emulator status",
    ),
)

SYNONYMS: dict[str, str] = {
    "ls": "list",
    "show": "describe",
    "get": "describe",
    "info": "describe",
    "rm": "delete",
    "remove": "delete",
    "destroy": "delete",
    "new": "create",
    "provision": "create",
    "start": "create",
    "login": "connect",
    "watch": "wait",
    "ssh": "attach",
    "run": "%%multislice",
    "px": "%%multislice",
    "stop": "interrupt",
    "scp": "push",
    "upload": "push",
    "copy": "push",
    "download": "pull",
    "autopx": "autocell",
    "advise": "recommend",
    "advice": "recommend",
    "gc": "reclaim",
    "cleanup": "reclaim",
    "cancel": "interrupt",
    "kill": "restart",
    "reboot": "reset",
    "chart": "plot",
    "benchmark": "sweep",
    "gui": "panel",
    "select": "use",
    "switch": "use",
}
"""Words of other tools, and what they are here; only ever offered, never run."""


def subcommand(name: str) -> Subcommand | None:
    """The subcommand of that name."""
    return next((command for command in SUBCOMMANDS if command.name == name), None)
