"""The table's part about what is around: the panel and the emulator."""

from __future__ import annotations

from multislice_nb.magics.arguments import Argument, Subcommand

__all__ = ["TOOLS"]

TOOLS: tuple[Subcommand, ...] = (
    Subcommand(
        name="panel",
        summary="Open the control panel: queued resources and workers, live.",
        examples=("",),
        python="ms.panel()",
    ),
    Subcommand(
        name="emulator",
        summary="Show, start or stop the Cloud TPU emulator on this machine, or make something fail on it.",
        arguments=(
            Argument(
                name="action",
                metavar="ACTION",
                required=True,
                choices=("status", "start", "stop", "env", "fault"),
                help="What to do; env shows %env lines that point gcloud and other clients at it",
            ),
            Argument(
                name="parameters",
                metavar="KIND [NAME=VALUE]",
                many=True,
                help="With fault: which, and its parameters; without, those there are are listed",
            ),
            Argument(
                name="clear", flags=("--clear",), switch=True, help="With fault: take back those that last"
            ),
        ),
        examples=("status", "fault preempt node=demo-1", "fault --clear", "stop"),
        python="python -m multislice_nb emulator status",
    ),
)
