"""The table's part about queued resources."""

from __future__ import annotations

from multislice_nb.magics.arguments import Argument, Subcommand
from multislice_nb.magics.grammar_create import CREATE
from multislice_nb.magics.shared import ACCELERATOR_TYPE, EVERY_ZONE, NAME, RUNTIME_VERSION, ZONE

__all__ = ["CLOUD"]

_NAMES = NAME.but(name="names", many=True, help="Queued resources")

CLOUD: tuple[Subcommand, ...] = (
    Subcommand(
        name="connect",
        summary="Connect to a project's Cloud TPUs, or to the emulator on this machine when there is no project.",
        arguments=(
            Argument(name="project", flags=("--project",), help="Google Cloud project id"),
            ZONE.but(help="Zone, as us-central2-b"),
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
    Subcommand(
        name="doctor",
        summary="Check everything that has to be right before slices can be used, each with its fix.",
        arguments=(
            ACCELERATOR_TYPE.but(help="Whether this type can be had here too"),
            RUNTIME_VERSION.but(help="And this software on it"),
        ),
        examples=("", "--accelerator-type v4-16"),
        python="cloud.doctor('v4-16')",
    ),
    CREATE,
    Subcommand(
        name="list",
        summary="List queued resources.",
        arguments=(EVERY_ZONE,),
        examples=("", "--zone -"),
        python="cloud.list()",
    ),
    Subcommand(
        name="describe",
        summary="Show a queued resource, its timeline and its slices.",
        arguments=(NAME, ZONE),
        examples=("demo",),
        python="qr = cloud.get('demo'); qr.refresh(), qr.nodes()",
    ),
    Subcommand(
        name="timeline",
        summary="Show when a queued resource came into each of its states, and the chip-hours it has used.",
        arguments=(NAME, ZONE),
        examples=("demo",),
        python="qr.timeline(), qr.usage",
    ),
    Subcommand(
        name="wait",
        summary="Wait until a queued resource is ACTIVE and its slices are READY.",
        arguments=(
            NAME,
            ZONE,
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
        name="reset",
        summary="Restart all workers of a queued resource; local files stay, variables are lost.",
        arguments=(NAME, ZONE),
        examples=("demo",),
        left="workers that are being restarted go on with it: %multislice describe shows them.",
        python="qr.reset()",
    ),
    Subcommand(
        name="recreate",
        summary="Delete a queued resource with its slices, wait until it is gone, and ask for the same again.",
        arguments=(
            NAME,
            ZONE,
            Argument(name="wait", flags=("--wait",), switch=True, help="Wait until it is ACTIVE"),
        ),
        examples=("demo",),
        left="it may be gone and not asked for again yet: %multislice list shows whether it is there.",
        python="qr.recreate()",
    ),
    Subcommand(
        name="delete",
        summary="Delete queued resources and their slices, and wait until they are gone.",
        arguments=(
            _NAMES,
            ZONE,
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
        left="what is being deleted goes on by itself: %multislice list shows what is left.",
        python="qr.delete()",
    ),
    Subcommand(
        name="reclaim",
        summary="Find what was forgotten and holds quota; only with --yes is anything deleted.",
        arguments=(
            _NAMES.but(
                required=False,
                help="With --yes: delete these of what is found; what is certainly of no use if left out",
            ),
            ZONE.but(help="Zone; all if left out"),
            Argument(name="yes", flags=("--yes", "-y"), switch=True, help="Delete, with all slices"),
        ),
        examples=("", "--yes", "--yes old older"),
        left="what is being deleted goes on by itself: %multislice reclaim shows what is left.",
        python="cloud.reclaim(), cloud.reclaim().sweep(['old'])",
    ),
)
