"""JupyterLab in a browser for the tests of this room; they are skipped where there is no browser."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

# pytest puts this folder on the path; for mypy it is one of the packages of tests.
from labdriver import CHROMIUM, FLAGS, Notebook, jupyterlab  # type: ignore[import-not-found]

from multislice_nb.testing import emulator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.widgets.labdriver import Lab


@pytest.fixture(scope="module")
def emulator_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An emulator that nobody else uses: panels show all that there is."""
    home = tmp_path_factory.mktemp("home")
    with emulator(time_factor=1, home=home):
        yield home


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium without a window."""
    playwright = pytest.importorskip("playwright.sync_api")
    pytest.importorskip("jupyterlab")
    if not Path(CHROMIUM).exists():
        pytest.skip(f"there is no browser at {CHROMIUM}")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def lab(emulator_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A JupyterLab whose kernels see this module's emulator."""
    root = Path(__file__).parents[2]
    with jupyterlab(tmp_path_factory.mktemp("lab"), PYTHONPATH=str(root)) as started:
        yield started


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where screenshots go: `$MULTISLICE_NB_SCREENSHOTS`, or a folder that is not kept."""
    named = os.environ.get("MULTISLICE_NB_SCREENSHOTS")
    folder = Path(named) if named else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def opened(
    lab: Lab, browser: Any, request: pytest.FixtureRequest, pictures: Path
) -> Iterator[Callable[..., Any]]:
    """Open a notebook of these cells in a page of its own; a picture is taken at the end."""
    pages: list[Any] = []

    def open_notebook(*cells: str, dark: bool = False) -> Notebook:
        lab.theme("JupyterLab Dark" if dark else "JupyterLab Light")
        page = browser.new_page(viewport={"width": 1200, "height": 1000})
        pages.append(page)
        name = request.node.name.replace("[", "_").replace("]", "")
        return Notebook(page, lab.notebook(f"{name}_{len(pages)}", cells))

    yield open_notebook
    for number, page in enumerate(pages):
        page.screenshot(path=pictures / f"{request.node.name}_{number}.png")
        page.close()
