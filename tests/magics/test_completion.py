from __future__ import annotations

from typing import Any

import pytest

from multislice_nb.magics.completion import Completion
from multislice_nb.widgets.session import Session


@pytest.fixture
def completion() -> Completion:
    """With two queued resources and three variables."""
    session = Session()
    session.know("demo", "other")
    return Completion(session, {"demo_name": "demo", "count": 2, "_hidden": 0})


def offered(completion: Completion, line: str) -> list[str] | None:
    """The words alone."""
    found = completion.offer(line)
    return None if found is None else found[1]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("%multislice cre", ["create"]),
        ("qr = %multislice cre", ["create"]),
        ("    %multislice de", ["describe", "delete", "define", "detach"]),
        ("%multislice create demo --accel", ["--accelerator-type"]),
        ("%multislice create demo --spot --res", ["--reservation", "--reservation-host"]),
        ("%multislice create demo --accelerator-type v4-16 --zone ", ["us-central2-b"]),
        ("%multislice create demo --accelerator-type=v5litepod-3", ["v5litepod-32"]),
        ("%multislice delete ", ["demo", "other"]),
        ("%multislice delete demo --as", ["--async"]),
        ("%multislice wait oth", ["other"]),
        ("%multislice plot t", ["tflops", "traffic"]),
        ("%multislice sweep --strategies fsdp,ten", ["tensor"]),
        ("%multislice create x --node-count $co", ["count"]),
        ("%multislice delete {demo", ["demo_name"]),
        ("%%multislice --ra", ["--ranks"]),
        ("%%multislice -o ", ["count", "demo_name"]),
        ("%%multislice --group-outputs ", ["type", "engine"]),
        ("%multislice nothing ", []),
        ("%multislice jo", ["job"]),
        ("%multislice job re", ["results", "retry", "remove"]),
        ("%multislice job submit x --accelerator-type v4-16 --nod", ["--node-count"]),
        ("%multislice job submit x -p steps 10 -p lr 0.1 --par", ["--parameter"]),
        ("%multislice experiment 00", ["00_quickstart"]),
        ("%multislice plan --strategy fsdp,te", ["tensor"]),
        ("%multislice create x --capacities spot,", ["on-demand", "reserved"]),
        ("%multislice sh --cluster ", ["demo", "other"]),
        ("%%multislice s", ["sh"]),
        ("%%multislice job ", ["submit"]),
        ("%%multislice sh --time", ["--timeout"]),
        ("%%multislice --nob", ["--noblock"]),
        ("%multislice experiment 03 -p embed", ["embedding"]),
        ("%multislice experiment 03 --folder x -m embed", ["embedding"]),
        ("%multislice experiment 03 -p embedding ", ["128"]),
        ("%multislice experiment 03 -p unknown ", []),
        ("%multislice experiment none -p ", []),
        ("%multislice experiment 03 -p embedding 256 --fol", ["--folder"]),
    ],
)
def test_what_fits_is_offered(completion: Completion, line: str, expected: list[str]) -> None:
    """Subcommands, flags, values and variables are offered where they fit, and no others."""
    assert offered(completion, line) == expected


@pytest.mark.parametrize(
    "line",
    [
        "x = cre",
        "%matplotlib in",
        "print('%multislice cre",
        "%multislice",
        "%multislice plot tflops sweeps/",
        "%multislice sh cat no",
    ],
)
def test_other_lines_are_left_to_ipython(completion: Completion, line: str) -> None:
    """Where it is not about a word of `%multislice`, nothing is offered and nothing suppressed."""
    assert offered(completion, line) is None


def test_zones_narrow_the_accelerator_types(completion: Completion) -> None:
    """With a zone on the line only types of that zone are offered."""
    words = offered(completion, "%multislice create demo --zone us-central2-b --accelerator-type ")
    assert words is not None
    assert "v4-16" in words
    assert not any(word.startswith("v6e") for word in words)


def test_a_flag_is_offered_once(completion: Completion) -> None:
    """A flag that stands on the line, or is excluded by one, is not offered again."""
    words = offered(completion, "%multislice create demo --spot -")
    assert words is not None
    assert "--spot" not in words
    assert "--reserved" not in words


def test_completion_never_waits(completion: Completion, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names come from the last listing: the API is not called in the kernel's thread."""

    def refuse(*_: Any) -> None:
        raise AssertionError("it was called")

    monkeypatch.setattr("multislice_nb._portal.sync", refuse)
    assert offered(completion, "%multislice delete d") == ["demo"]
