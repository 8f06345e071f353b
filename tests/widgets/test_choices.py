"""What tabs do with choices: what is offered, what was chosen, and what goes wrong."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from multislice_nb.errors import ClusterError, ExperimentError
from multislice_nb.widgets.explorer import Explorer
from multislice_nb.widgets.fields import Choice
from multislice_nb.widgets.loop import KernelLoop
from multislice_nb.widgets.outcome import Desk
from multislice_nb.widgets.painting import named
from multislice_nb.widgets.runner import Runner
from multislice_nb.widgets.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def loop() -> KernelLoop:
    """One that is drained by hand."""
    return KernelLoop()


@pytest.fixture
def desk(loop: KernelLoop) -> Desk:
    """Where tabs write what became of what they did."""
    return Desk(loop, lambda: None)


def settle(desk: Desk, loop: KernelLoop) -> None:
    """Let all work end and be told."""
    while desk.running:
        for future in tuple(desk.running):
            future.exception()
        loop.drain()


def test_what_is_chosen_stays_chosen_without_a_word() -> None:
    """Other options change what is chosen only where that is gone, and only then is anybody told."""
    choice = Choice(options=["one", "two"])
    choice.value = "two"
    told: list[Any] = []
    choice.observe(lambda change: told.append((change["old"], change["new"])), "value")
    choice.offer(["new", "one", "two"])
    choice.offer([("two, again", "two"), ("new", "new")])
    assert (choice.value, choice.label, choice.index, told) == ("two", "two, again", 0, [])
    choice.offer(["new", "other"])
    assert (choice.value, choice.index, told) == ("new", 0, [("two", "new")])
    choice.offer([])
    choice.offer(["first"])
    assert (choice.value, told[1:]) == ("first", [("new", None), (None, "first")])
    choice.offer(["later", "first"])
    choice.value = "later"
    assert told[3:] == [("first", "later")]


def test_a_failure_that_goes_on_is_one_note(desk: Desk, loop: KernelLoop) -> None:
    """What fails again and again in the same words is written once; other words are written too."""

    def fail(words: str) -> None:
        async def work(_: Callable[[str], None]) -> None:
            raise ClusterError(words)

        desk.quietly(work, then=lambda _: None)
        settle(desk, loop)

    for words in ("The store is away.", "The store is away.", "It is full.", "The store is away."):
        fail(words)
    assert desk.view.value.count("The store is away.") == 1
    assert desk.view.value.count("It is full.") == 1


def test_interrupt_reaches_the_cluster_whose_cell_runs(desk: Desk, loop: KernelLoop) -> None:
    """Another cluster that is chosen meanwhile runs on, and so does one attached anew under the same name."""
    interrupted: list[str] = []
    ended = SimpleNamespace(ok=True, workers=())
    handle = SimpleNamespace(done=False, progress=None, result=lambda check: ended)

    def cluster(name: str) -> Any:
        return SimpleNamespace(
            name=name, submit=lambda code, ranks: handle, interrupt=lambda: interrupted.append(name)
        )

    clusters = {"one": cluster("one"), "two": cluster("two")}
    session = SimpleNamespace(cluster=lambda name="two": clusters[name])
    runner = Runner(cast("Session", session), desk, loop)
    assert runner._nobody.layout.display is None
    runner.show(cast("Any", SimpleNamespace(clusters=tuple(clusters.values()))))
    assert runner._nobody.layout.display == "none"
    runner.choice.value = "one"
    runner.run.click()
    runner.choice.value = "two"
    clusters["one"] = cluster("one, attached anew")
    runner.stop.click()
    assert interrupted == ["one"]
    assert "%multislice interrupt one" in desk.view.value
    assert "%%multislice --cluster one" in desk.view.value
    handle.done = True
    settle(desk, loop)
    assert runner.stop.disabled


def test_groups_of_another_column_are_no_filter(desk: Desk, loop: KernelLoop, tmp_path: Path) -> None:
    """Where lines are told apart by something else, all of them are drawn; filling in the groups draws nothing anew."""
    (tmp_path / "done.jsonl").write_text("")
    asked: list[dict[str, Any]] = []
    groups = {"strategy": ["fsdp", "tensor"], "layers": ["1", "2"]}

    async def draw(_: Any, **choices: Any) -> tuple[list[str], bytes]:
        asked.append(choices)
        if not set(choices["only"]) <= set(groups[choices["colour"]]):
            raise ExperimentError("Nothing measured has them.")
        return groups[choices["colour"]], b"png"

    explorer = Explorer(Session(), desk, lambda _: True, tmp_path)
    explorer._painter.draw = draw  # type: ignore[method-assign,assignment]
    explorer.look()
    settle(desk, loop)
    explorer.only.value = ("tensor",)
    explorer.colour.value = "layers"
    settle(desk, loop)
    assert asked[-1]["only"] == []
    assert list(explorer.only.options) == ["1", "2"]
    drawn = len(asked)
    explorer.colour.value = "strategy"
    settle(desk, loop)
    assert len(asked) == drawn + 1


def test_files_of_one_name_are_told_apart() -> None:
    """Two sweeps called the same are two on the chart, by the folders in which they differ."""
    assert named(["/a/x/done.jsonl", "/b/x/done.jsonl"]) == {
        "a/x/done": "/a/x/done.jsonl",
        "b/x/done": "/b/x/done.jsonl",
    }
    assert named(["/a/one.jsonl", "/a/two.jsonl", "/a/one.jsonl"]) == {
        "one": "/a/one.jsonl",
        "two": "/a/two.jsonl",
    }
    assert len(named(["/a/done.jsonl", "/a/done.txt"])) == 2
