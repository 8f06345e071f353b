from __future__ import annotations

import asyncio
import subprocess
import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest

from multislice_nb.magics import ahead
from multislice_nb.magics.autocell import Autocell, EmptyCell

LOADING = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
def parts():
    return (
        sorted(shell.magics_manager.magics["line"]), sorted(shell.magics_manager.magics["cell"]),
        len(shell.configurables), len(shell.Completer.custom_matchers), len(shell.input_transformers_cleanup),
        sorted(map(str, shell.display_formatter.formatters["text/plain"].deferred_printers)),
    )
shell.run_line_magic("load_ext", "autoreload")  # brings the shell's own lazy parts with it
before = parts()
shell.run_line_magic("load_ext", "multislice_nb.magics")
loaded = parts()
assert loaded != before
shell.run_line_magic("reload_ext", "multislice_nb.magics")
assert parts() == loaded
shell.run_line_magic("unload_ext", "multislice_nb.magics")
assert parts() == before, (parts(), before)
print("fine")
"""


def cleaned(transformer: object, text: str) -> list[str]:
    """A cell's lines after IPython has read them with a transformer in place."""
    from IPython.core.inputtransformer2 import TransformerManager

    manager = TransformerManager()
    manager.cleanup_transforms.append(transformer)
    return manager.transform_cell(text).splitlines()


@pytest.mark.parametrize("cell", ["%%multislice", "%%multislice --ranks 0\n", "\n\n  %%multislice -o x"])
def test_a_cell_with_nothing_below_its_line_comes_to_us(cell: str) -> None:
    """IPython refuses only a body without a single character, so that such a cell gets a line."""
    called = cleaned(EmptyCell(), cell)
    assert called[-1].startswith("get_ipython().run_cell_magic('multislice', ")
    assert called[-1].endswith(r", '\n')")


@pytest.mark.parametrize(
    "cell", ["%%time\n", "%%multislices\n", "%multislice\n", "%%multislice\n1\n", "x = 1\n"]
)
def test_other_cells_stay_as_they_are(cell: str) -> None:
    """Nothing is added to what is not ours or has a body."""
    from IPython.core.inputtransformer2 import TransformerManager

    assert "\n".join(cleaned(EmptyCell(), cell)) == TransformerManager().transform_cell(cell).rstrip("\n")


def test_a_terminal_still_waits_for_the_cells_lines() -> None:
    """IPython's own question whether a cell is complete is not answered by the line that we would add."""
    from IPython.core.inputtransformer2 import TransformerManager

    manager = TransformerManager()
    manager.cleanup_transforms.append(EmptyCell())
    assert manager.check_complete("%%multislice\n")[0] == "incomplete"


@pytest.mark.parametrize(
    ("cell", "sent"),
    [
        ("# does it fit?\nx = 1\n", True),
        ("ask('ready?')  # or not?\n", True),
        ("'ready?'\n", True),
        ("len?\n", False),
        ("  jax.jit??\nx = 1\n", False),
        ("?len\n", False),
        ("!ls\n", False),
        ("\n%time 1\n", False),
        ("\n\n", False),
    ],
)
def test_autocell_leaves_only_what_ipython_itself_reads(cell: str, sent: bool) -> None:
    """Cells go to the workers unless they begin with a magic, a command or a question; a comment is none."""
    autocell = Autocell(cast("Any", SimpleNamespace(input_transformers_cleanup=[])))
    lines = cell.splitlines(keepends=True)
    assert autocell(lines) == (["%%multislice\n", *lines] if sent else lines)


def test_unloading_takes_back_what_loading_did() -> None:
    """Reloading doubles nothing, and unloading leaves the shell as it was."""
    run = subprocess.run([sys.executable, "-c", LOADING], capture_output=True, text=True, check=False)
    assert run.stdout.splitlines()[-1:] == ["fine"], run.stdout + run.stderr


@pytest.mark.parametrize("watched", [True, False])
def test_code_is_read_ahead_where_somebody_watches(watched: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the kernel has nothing to do, what a panel needs is read in a thread; under a notebook runner nothing is."""
    read: list[str] = []
    monkeypatch.setattr(ahead, "_LATER", 0.0)
    monkeypatch.setattr(ahead, "read", lambda: read.append("read"))

    async def turn() -> None:
        parent = {"content": {"allow_stdin": watched}}
        io_loop = SimpleNamespace(asyncio_loop=asyncio.get_running_loop())
        kernel = SimpleNamespace(io_loop=io_loop, get_parent=lambda _: parent)
        ahead.read_soon(cast("Any", SimpleNamespace(kernel=kernel)))
        assert read == []
        await asyncio.sleep(0.01)

    asyncio.run(turn())
    assert read == (["read"] if watched else [])
