"""The one table of `%multislice`: parser, help, completion and the reference in the README come from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multislice_nb.magics.grammar_cloud import CLOUD
from multislice_nb.magics.grammar_environment import ENVIRONMENT
from multislice_nb.magics.grammar_experiments import EXPERIMENTS
from multislice_nb.magics.grammar_jobs import JOBS
from multislice_nb.magics.grammar_planning import PLANNING
from multislice_nb.magics.grammar_shell import SHELL
from multislice_nb.magics.grammar_slices import SLICES
from multislice_nb.magics.grammar_tools import TOOLS
from multislice_nb.magics.grammar_workers import CELL, WORKERS

if TYPE_CHECKING:
    from multislice_nb.magics.arguments import Subcommand

__all__ = ["CELL", "GROUPS", "SUBCOMMANDS", "SYNONYMS", "subcommand"]

SUBCOMMANDS: tuple[Subcommand, ...] = (
    *CLOUD,
    *SLICES,
    *WORKERS,
    *SHELL,
    *ENVIRONMENT,
    *PLANNING,
    *EXPERIMENTS,
    *JOBS,
    *TOOLS,
)

_PAIRS = [command.name.split() for command in SUBCOMMANDS if " " in command.name]

GROUPS: dict[str, tuple[str, ...]] = {
    first: tuple(second for word, second in _PAIRS if word == first) for first, _ in _PAIRS
}
"""First words of subcommands that have two, and their second words."""

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
    "follow": "watch",
    "slices": "nodes",
    "ssh": "attach",
    "run": "%%multislice",
    "px": "%%multislice",
    "set": "define",
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
    "history": "timeline",
    "check": "doctor",
    "bash": "sh",
    "pip": "install",
    "env": "environment",
    "shell": "sh",
    "jobs": "job list",
    "notebook": "experiment",
    "papermill": "experiment",
    "roofline": "plot",
    "submit": "job submit",
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
