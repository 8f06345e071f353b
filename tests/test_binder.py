"""The files from which a Binder is built."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
BINDER = ROOT / "binder"


def test_python_is_pinned_to_one_that_the_package_takes() -> None:
    """The pinned Python is one of those that pyproject allows."""
    major, minor = (BINDER / "runtime.txt").read_text().strip().removeprefix("python-").split(".")
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert (int(major), int(minor)) >= tuple(map(int, required.removeprefix(">=").split(".")))


def test_the_package_itself_is_installed() -> None:
    """The script that runs after the build can be run, is sound bash, and installs this repository."""
    script = BINDER / "postBuild"
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", script], check=True)
    assert "pip install --no-cache-dir ." in script.read_text()


def test_binders_own_builder_reads_them() -> None:
    """repo2docker takes the pinned Python, then the requirements, then the script that installs the package."""
    build = [sys.executable, "-m", "repo2docker", "--no-build", "--debug", str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True, check=True, timeout=120)
    told = done.stdout + done.stderr
    pinned = (BINDER / "runtime.txt").read_text().strip().removeprefix("python-")
    assert f"python={pinned}" in told
    steps = re.findall(r"^RUN .*(binder/requirements\.txt|\./binder/postBuild)", told, re.MULTILINE)
    assert steps == ["binder/requirements.txt", "./binder/postBuild"]


def test_no_tpu_library_is_pulled_in() -> None:
    """What Binder installs stays within its two gigabytes: libtpu alone would take 700 MB."""
    needed = " ".join(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"])
    assert "tpu]" not in needed
    assert "libtpu" not in needed + (BINDER / "requirements.txt").read_text()


def test_the_badge_opens_a_notebook_that_exists() -> None:
    """The README's badge leads to a file of this repository."""
    (target,) = re.findall(
        r"https://mybinder\.org/v2/gh/\S+?urlpath=lab/tree/([^)]+)", (ROOT / "README.md").read_text()
    )
    assert (ROOT / target).exists()
