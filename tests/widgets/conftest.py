"""JupyterLab in a browser for the tests of this room; they are skipped where there is no browser."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

# pytest puts this folder on the path; for mypy it is one of the packages of tests.
from labdriver import CHROMIUM, FLAGS, Notebook, jupyterlab  # type: ignore[import-not-found]

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.widgets.labdriver import Lab

_pictures: list[Path] = []


@pytest.fixture(scope="module")
def emulator_home(emulator_apart: Path) -> Path:
    """Panels show all that there is."""
    return emulator_apart


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium without a window; of the module's own, as its driver keeps a loop in this thread."""
    playwright = pytest.importorskip("playwright.sync_api")
    pytest.importorskip("jupyterlab")
    if not Path(CHROMIUM).exists():
        pytest.skip(f"there is no browser at {CHROMIUM}")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def lab(browser: Any, emulator_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A JupyterLab whose kernels see this module's emulator."""
    root = Path(__file__).parents[2]
    with jupyterlab(tmp_path_factory.mktemp("lab"), PYTHONPATH=str(root)) as started:
        yield started


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where screenshots go: `$MULTISLICE_NB_SCREENSHOTS`, or a folder that is named at the end of the run."""
    named = os.environ.get("MULTISLICE_NB_SCREENSHOTS")
    folder = Path(named).absolute() if named else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    _pictures.append(folder)
    return folder


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Name the folder of the screenshots."""
    for folder in _pictures:
        terminalreporter.write_line(f"screenshots: {folder} ({len(list(folder.glob('*.png')))})")


@pytest.fixture
def opened(
    lab: Lab,
    browser: Any,
    request: pytest.FixtureRequest,
    pictures: Path,
) -> Iterator[Callable[..., Any]]:
    """Open a notebook of these cells in a page of its own; afterwards a picture, and nothing is left for the next."""
    made: list[Notebook] = []

    def open_notebook(*cells: str, dark: bool = False, width: int = 1200, classic: bool = False) -> Notebook:
        lab.theme("JupyterLab Dark" if dark else "JupyterLab Light")
        page = browser.new_page(viewport={"width": width, "height": 1100})
        name = f"{request.node.name}_{len(made)}"
        made.append(Notebook(page, lab.notebook(name, cells, classic=classic), pictures))
        return made[-1]

    yield open_notebook
    for number, notebook in enumerate(made):
        notebook.shoot(f"{request.node.name}_{number}")
        notebook.page.close()
    lab.end_kernels()
    delete_all()


def delete_all() -> None:
    """Delete the queued resources of the emulator in use, and let no fault be left."""
    import multislice_nb as ms
    from multislice_nb.emulator import control

    with control.connect() as hand:
        hand.clear_faults()
    with ms.connect(emulator=True) as cloud:
        for name in cloud.list().names:
            cloud.get(name).delete(force=True)
