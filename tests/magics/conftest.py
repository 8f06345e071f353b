"""A shell with the extension loaded, and workers for the cells of these tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from multislice_nb.cloud import Cloud


@pytest.fixture
def cloud(emulator_home: Path) -> Cloud:
    """A connection to the emulator beside that of the magics."""
    import multislice_nb as ms

    return ms.connect(emulator=True)


@pytest.fixture(scope="session")
def shell() -> Iterator[InteractiveShell]:
    """IPython's own shell with `%multislice` in it."""
    made = InteractiveShell.instance()
    made.run_line_magic("load_ext", "multislice_nb.magics")
    yield made
    made.run_line_magic("unload_ext", "multislice_nb.magics")
    InteractiveShell.clear_instance()


@pytest.fixture(scope="session")
def run(shell: InteractiveShell) -> Callable[[str], Any]:
    """Run a cell; gives its value, and raises what it raised."""

    def run_cell(code: str) -> Any:
        done = shell.run_cell(code)
        done.raise_error()
        return done.result

    return run_cell


@pytest.fixture(scope="session")
def attached(emulator_home: Path, run: Callable[[str], Any]) -> Iterator[str]:
    """The name of an attached cluster of two slices, made with the magics alone."""
    run("%multislice connect --emulator")
    run("%multislice create pair --accelerator-type v4-16 --node-count 2 --wait")
    run("%multislice attach pair")
    yield "pair"
    run("%multislice delete pair")
