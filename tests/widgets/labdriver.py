"""A real JupyterLab and a real browser, for the tests of what people see."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
DEADLINE = 120_000
"""Milliseconds to wait for something on a page: far beyond what it takes, for machines that do much else."""


@contextmanager
def jupyterlab(folder: Path, **environment: str) -> Iterator[Lab]:
    """A server with its files in a folder; ended with all its kernels."""
    token = secrets.token_hex(16)
    home = folder / "home"
    settings = home / "config" / "lab" / "user-settings" / "@jupyterlab"
    (settings / "apputils-extension").mkdir(parents=True)
    (settings / "apputils-extension" / "notification.jupyterlab-settings").write_text(
        json.dumps({"fetchNews": "false", "checkForUpdates": False})
    )
    (folder / "work").mkdir()
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--no-browser",
        "--port=0",
        f"--IdentityProvider.token={token}",
    ]
    command += [
        f"--ServerApp.root_dir={folder / 'work'}",
        "--ServerApp.allow_root=True",
        "--LabApp.news_url=None",
    ]
    command += ["--LabApp.collaborative=False", "--KernelManager.shutdown_wait_time=3"]
    own = {
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTERLAB_SETTINGS_DIR": str(home / "config" / "lab" / "user-settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "IPYTHONDIR": str(home / "ipython"),
        **environment,
    }
    with (folder / "lab.log").open("w") as log:
        process = subprocess.Popen(command, env=os.environ | own, stdout=log, stderr=log, cwd=folder)
    try:
        yield Lab(folder / "work", _address(folder / "lab.log", process), token, settings)
    finally:
        _end(process)


def _address(log: Path, process: subprocess.Popen[bytes], deadline: float = 60.0) -> str:
    limit = time.monotonic() + deadline
    while time.monotonic() < limit and process.poll() is None:
        found = re.search(r"http://(?:localhost|127\.0\.0\.1):\d+", log.read_text())
        if found and _answers(found[0]):
            return found[0]
        time.sleep(0.1)
    raise AssertionError(f"JupyterLab did not start: {log.read_text()[-3000:]}")


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/api", timeout=2) as answer:  # noqa: S310 - the server we started
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _end(process: subprocess.Popen[bytes]) -> None:
    family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    process.terminate()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for child in psutil.wait_procs(family, timeout=5)[1]:
        child.kill()


class Lab:
    """A running server.

    Args:
        folder: Its files.
        address: Where it answers.
        token: What lets one in.
        settings: Where it keeps what people set.
    """

    def __init__(self, folder: Path, address: str, token: str, settings: Path) -> None:
        self._settings = settings
        self.folder = folder
        self.address = address
        self.token = token

    def theme(self, name: str) -> None:
        """The theme of the pages that are opened from now on."""
        path = self._settings / "apputils-extension" / "themes.jupyterlab-settings"
        path.write_text(json.dumps({"theme": name}))

    def notebook(self, name: str, cells: Sequence[str], *, classic: bool = False) -> str:
        """Write a notebook; returns the address that opens it in JupyterLab, or in Notebook 7."""
        import nbformat

        made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(made, self.folder / f"{name}.ipynb")
        if classic:
            return f"{self.address}/notebooks/{name}.ipynb?token={self.token}"
        return f"{self.address}/doc/tree/{name}.ipynb?token={self.token}&reset"

    def end_kernels(self) -> None:
        """End all kernels and what they poll, as nobody looks at them any more."""
        for kernel in json.loads(self._ask("GET", "/api/kernels")):
            self._ask("DELETE", f"/api/kernels/{kernel['id']}")

    def _ask(self, method: str, path: str) -> bytes:
        request = urllib.request.Request(  # noqa: S310 - the server we started
            self.address + path, method=method, headers={"Authorization": f"token {self.token}"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - as above
            content: bytes = answer.read()
            return content


class Notebook:
    """A notebook in a page.

    Args:
        page: Playwright's page.
        address: What opens it.
        pictures: Where its screenshots go.
    """

    def __init__(self, page: Any, address: str, pictures: Path) -> None:
        self.page = page
        self._pictures = pictures
        page.set_default_timeout(DEADLINE)
        page.goto(address)
        self._ready()

    def _ready(self) -> None:
        self.page.locator(".jp-Notebook .jp-CodeCell").first.wait_for()
        self.page.locator(".jp-Toolbar-kernelName, .jp-KernelName", has_text="Python 3").first.wait_for()
        self.idle()

    def reload(self) -> None:
        """Load the page again, as people do, with the kernel as it is."""
        self.page.reload()
        self._ready()

    def save(self) -> None:
        """Save the notebook, outputs included, and wait until the server has it."""
        with self.page.expect_response(lambda answer: answer.request.method == "PUT"):
            self.page.get_by_role("button", name="Save and create checkpoint").click()

    def clear(self) -> None:
        """Clear the outputs of all cells, by the menu."""
        self.page.get_by_role("menuitem", name="Edit").click()
        self.page.get_by_role("menuitem", name="Clear Outputs of All Cells").click()

    def restart(self) -> None:
        """Restart the kernel with its button."""
        self.page.get_by_role("button", name="Restart the kernel", exact=True).click()
        self.page.locator(".jp-Dialog .jp-mod-accept").click()
        self.page.locator(".jp-Dialog").wait_for(state="detached")
        self.idle()

    def idle(self) -> None:
        """Wait until the kernel has nothing to do."""
        self.page.locator(".jp-Notebook-ExecutionIndicator[data-status='idle']").wait_for(state="attached")

    def shoot(self, name: str, *, panel: bool = False) -> None:
        """Keep a picture of the page, or of the last panel alone."""
        shown = self.page.locator(".msnb-board").last if panel else self.page
        shown.screenshot(path=self._pictures / f"{name}.png")

    def cell(self, number: int) -> Any:
        """A cell by its place."""
        return self.page.locator(".jp-Notebook .jp-CodeCell").nth(number)

    def start(self, number: int) -> Any:
        """Run a cell and do not wait for its end."""
        cell = self.cell(number)
        cell.locator(".cm-content").click()
        self.page.keyboard.press("Control+Enter")
        return cell

    def run(self, number: int) -> Any:
        """Run a cell and wait until it has ended."""
        cell = self.start(number)
        cell.locator(".jp-InputPrompt", has_text=re.compile(r"\[\d+\]")).wait_for()
        return cell

    def output(self, number: int) -> Any:
        """What a cell has put out."""
        return self.cell(number).locator(".jp-Cell-outputWrapper")

    def button(self, name: str) -> Any:
        """A button of the panel, by its words."""
        return self.page.get_by_role("button", name=re.compile(re.escape(name) + "$"))

    def tab(self, name: str) -> Any:
        """A tab of the panel."""
        return self.page.locator(".jupyter-widget-tab .lm-TabBar-tab", has_text=name)

    def told(self, text: str) -> Any:
        """What the panel says of what it did."""
        return self.page.locator(".msnb-notes").get_by_text(text)
