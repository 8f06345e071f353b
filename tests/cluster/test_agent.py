"""What runs inside an engine, in an IPython shell of this process."""

from __future__ import annotations

import signal
import socket
from typing import TYPE_CHECKING, Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from multislice_nb.cluster import agent, joining, record
from multislice_nb.cluster.result import RemoteValue, unpack

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    """The shell that `get_ipython` finds."""
    shell = InteractiveShell.instance()
    agent.load_ipython_extension(shell)
    yield shell
    InteractiveShell.clear_instance()


def run(code: str) -> dict[str, Any]:
    """Run a cell as an engine would."""
    return agent.run_cell(code, "<cell 1>", "0")


def test_value_of_the_last_expression(shell: InteractiveShell) -> None:
    """The last expression's value comes back, and a statement gives None."""
    assert unpack(run("x = 6\nx * 7")["value"]) == 42
    assert unpack(run("x = 6")["value"]) is None


def test_jax_arrays_come_back_as_numpy(shell: InteractiveShell) -> None:
    """A JAX array travels without JAX, inside other objects too."""
    value = run("import jax.numpy as jnp\n{'a': jnp.arange(3)}")["value"]
    assert b"jax" not in value["pickle"]
    assert unpack(value)["a"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(("code", "why"), [("lambda: 1", "pickled"), ("b'x' * 5_000_000", "bytes pickled")])
def test_what_cannot_travel_comes_as_text(shell: InteractiveShell, code: str, why: str) -> None:
    """A value that cannot be pickled, or is too large, is sent as its text with the reason."""
    value = unpack(run(code)["value"])
    assert isinstance(value, RemoteValue)
    assert why in value.why
    assert len(value.text) <= 10_000


PARTS = """
made = 0
class Part:
    def __reduce__(self):
        global made
        made += 1
        {reduced}
[Part() for _ in range(100)]
"""


def test_a_large_value_is_not_packed_to_its_end(shell: InteractiveShell) -> None:
    """Once a value has more bytes than travel, no more of it is made."""
    value = unpack(run(PARTS.format(reduced="return bytes, (bytes(1 << 20),)"))["value"])
    assert "bytes pickled" in value.why
    assert shell.user_ns["made"] == 4


def test_packing_a_value_can_be_interrupted(shell: InteractiveShell) -> None:
    """A value that takes long to pickle is ended by an interrupt, as its cell is."""
    reply = run(PARTS.format(reduced="import signal; signal.raise_signal(signal.SIGINT)"))
    assert (reply["error"]["ename"], shell.user_ns["made"]) == ("KeyboardInterrupt", 1)


def test_error_names_the_line_of_the_cell(shell: InteractiveShell) -> None:
    """A failure says which line of the cell it came from, and shows no frame of ours."""
    error = run("def f():\n    return 1 / 0\nf()")["error"]
    assert (error["ename"], error["line_number"]) == ("ZeroDivisionError", 2)
    assert error["line"] == "return 1 / 0"
    assert "agent.py" not in error["traceback"]
    assert "interactiveshell" not in error["traceback"]


def test_syntax_error_names_its_line(shell: InteractiveShell) -> None:
    """A cell that does not compile says where, without IPython's own frames."""
    error = run("x = 1\ny = = 2")["error"]
    assert (error["ename"], error["line_number"], error["line"]) == ("SyntaxError", 2, "y = = 2")
    assert "interactiveshell" not in error["traceback"]


@pytest.mark.parametrize("code", ["raise SystemExit(3)", "raise KeyboardInterrupt", "import sys; sys.exit()"])
def test_leaving_a_cell_is_an_outcome(shell: InteractiveShell, code: str) -> None:
    """A cell that exits does not take the engine with it."""
    assert not run(code)["ok"]


def test_error_with_a_broken_str(shell: InteractiveShell) -> None:
    """An exception that cannot describe itself is reported all the same."""
    error = run("class E(Exception):\n    def __str__(self): return 1/0\nraise E")["error"]
    assert error["ename"] == "E"
    assert "str failed" in error["evalue"]


def test_call_runs_an_importable_function() -> None:
    """A function is found by its module and name."""
    assert unpack(agent.call("operator:add", (2, 3), {}, "1")["value"]) == 5
    assert agent.call("operator:nothing", (), {}, "2")["error"]["ename"] == "AttributeError"


def test_the_coordinators_port_is_held_and_answers() -> None:
    """It gets the next port when its own is taken, and others see whether that can be reached."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        first = taken.getsockname()[1]
        port = unpack(agent.hold_port("127.0.0.1", first)["value"])
        assert port > first
        assert agent.reach_port("127.0.0.1", port, 5)["ok"]
        joining._release_port()
    assert agent.reach_port("127.0.0.1", port, 5)["error"]["ename"] == "ConnectionRefusedError"


def test_a_request_that_comes_twice_runs_once(
    shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A notebook that cannot know whether its request arrived may send it again."""
    monkeypatch.setenv("MULTISLICE_NB_FOLDER", str(tmp_path))
    run("runs = 0")
    for _ in range(2):
        assert agent.run_cell("runs += 1", "<cell 2>", "twice")["ok"]
    assert shell.user_ns["runs"] == 1
    assert (tmp_path / "cells/twice/reply.pickle").exists()


def test_an_interrupt_before_the_cell_is_the_cells(
    shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt that comes while the record is made ends the cell, and leaves the record whole."""

    def begin(*_: object) -> bool:
        signal.raise_signal(signal.SIGINT)
        return True

    monkeypatch.setattr(record, "begin", begin)
    ended: list[dict[str, Any]] = []
    monkeypatch.setattr(record, "end", lambda _, reply, shelf: ended.append(reply))
    reply = run("x = 1")
    assert reply["error"]["ename"] == "KeyboardInterrupt"
    assert ended == [reply]
    monkeypatch.undo()
    assert run("1")["ok"]
