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
