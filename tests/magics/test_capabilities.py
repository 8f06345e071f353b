"""Whatever can be done in Python can be done with a magic."""

from __future__ import annotations

import inspect
import re

import pytest

import multislice_nb as ms
from multislice_nb.cloud import Cloud, QueuedResource
from multislice_nb.cluster import Cluster
from multislice_nb.magics.grammar import CELL, SUBCOMMANDS

PYTHON = "\n".join(command.python for command in (*SUBCOMMANDS, CELL))
"""The table says of each subcommand what it is in Python."""

WITHOUT = {
    "Cloud.acreate_anywhere": "of the core: `create --zones` does it",
    "Cloud.close": "a connection is closed with its kernel, and its slices stay either way",
    "Cloud.tower": "of the core: who watches a zone",
    "QueuedResource.wait_async": "its future and its callback are Python's own; `wait` in a cell waits",
    "Cluster.call": "what a cell says with a line of Python",
    "Cluster.find_left": "of the core: `attach` does it",
    "Job.log_link": "a page for a browser: nothing is run",
    "Job.tend": "`job status` and `job list` do it",
    "Job.search": "`job logs --grep`",
    "load_ipython_extension": "%load_ext multislice_nb",
    "unload_ipython_extension": "%unload_ext multislice_nb",
}
"""What has no subcommand, and why."""


def methods(kind: type) -> list[str]:
    """Public methods, without the asynchronous twins, whose name has an `a` before it, or a `_` behind."""
    names = [
        name
        for name, value in inspect.getmembers(kind)
        if not name.startswith("_") and inspect.isfunction(value)
    ]
    return [name for name in names if name.removeprefix("a").rstrip("_") not in {*names} - {name}]


CAPABILITIES = [
    *(name for name in ms.__all__ if inspect.isroutine(getattr(ms, name))),
    *(
        f"{kind.__name__}.{name}"
        for kind in (Cloud, QueuedResource, Cluster, ms.jobs.Job)
        for name in methods(kind)
    ),
]


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_every_capability_has_its_subcommand(capability: str) -> None:
    """Each public function and method stands in the table, or is left out for a reason."""
    name = capability.rpartition(".")[2]
    is_there = re.search(rf"\.{name}\b", PYTHON) is not None
    assert is_there != (capability in WITHOUT), f"{capability}: {WITHOUT.get(capability, 'no subcommand')}"


def test_reasons_are_for_what_there_is() -> None:
    """Nothing is left out that does not exist."""
    assert set(WITHOUT) <= set(CAPABILITIES)
