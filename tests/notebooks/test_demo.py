"""`python -m multislice_nb demo`, and what is left after it, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment whose temporary files are the test's own, so that what is left can be told apart."""
    folder = tmp_path / "t"
    folder.mkdir()
    return {name: value for name, value in os.environ.items() if not name.startswith("MULTISLICE_NB")} | {
        "TMPDIR": str(folder)
    }


def start(environment: dict[str, str], output: Path) -> subprocess.Popen[str]:
    """The demo as a process."""
    return subprocess.Popen(
        [sys.executable, "-m", "multislice_nb", "demo", "--output", str(output)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def ours(environment: dict[str, str]) -> list[psutil.Process]:
    """Processes that live in the test's temporary folder."""
    found = []
    for process in psutil.process_iter():
        try:
            environ = process.environ()
        except (psutil.Error, OSError):
            continue
        if environment["TMPDIR"] in environ.get("TMPDIR", "") or environment["TMPDIR"] in environ.get(
            "HOME", ""
        ):
            found.append(process)
    return found


def wait_for(condition: Callable[[], object], seconds: float) -> None:
    """Wait until a condition holds."""
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "the condition did not come true"
        time.sleep(0.1)


def engines(environment: dict[str, str]) -> list[psutil.Process]:
    """Processes of the test's emulated workers that run an engine."""
    found = []
    for process in ours(environment):
        try:
            if "multislice_nb.cluster.engine" in process.cmdline():
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_demo_makes_a_notebook_and_two_charts(tmp_path: Path, environment: dict[str, str]) -> None:
    """It ends by naming the executed notebook, both charts and how to open it, and leaves nothing behind."""
    output = tmp_path / "out"
    demo = start(environment, output)
    text = demo.communicate()[0]
    assert demo.returncode == 0, text
    for name in ("00_quickstart.ipynb", "tflops.png", "intensity.png"):
        assert str(output / name) in text
        assert (output / name).stat().st_size > 10_000
    assert f"-m jupyterlab {output / '00_quickstart.ipynb'}" in text
    rows = (output / "results.jsonl").read_text().splitlines()
    assert len(rows) == 12
    assert not ours(environment)
    assert not list((tmp_path / "t").iterdir())


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_demo_leaves_nothing(
    tmp_path: Path, environment: dict[str, str], sign: signal.Signals
) -> None:
    """Ctrl-C, or SIGTERM, while workers run ends every process and removes every temporary file."""
    demo = start(environment, tmp_path / "out")
    wait_for(lambda: len(engines(environment)) >= 4, 120)
    demo.send_signal(sign)
    text = demo.communicate(timeout=60)[0]
    assert demo.returncode == 130, text
    assert "Traceback" not in text
    wait_for(lambda: not ours(environment), 15)
    assert not list((tmp_path / "t").iterdir())


def test_killed_demo_is_noticed(tmp_path: Path, environment: dict[str, str]) -> None:
    """When demo and kernel are killed, the emulator notices that its owners are gone and ends by itself."""
    demo = start(environment | {"MULTISLICE_NB_EMULATOR_IDLE": "2"}, tmp_path / "out")
    wait_for(lambda: len(engines(environment)) >= 4, 120)
    kernels = [
        p
        for p in psutil.Process(demo.pid).children(recursive=True)
        if "ipykernel_launcher" in str(p.cmdline())
    ]
    demo.kill()
    for kernel in kernels:
        kernel.kill()
    demo.communicate()
    wait_for(lambda: not ours(environment), 60)
