from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from multislice_nb.errors import ExperimentError
from multislice_nb.widgets.painter import Painter

if TYPE_CHECKING:
    from pathlib import Path

CHOICES = {"x": "batch_per_device", "y": "tflops_per_chip", "colour": "strategy", "theme": "light"}
APART = """
import sys
from pathlib import Path
import psutil
from multislice_nb._portal import sync
from multislice_nb.widgets.painter import Painter
painter = Painter()
groups, png = sync(painter.draw, [Path(sys.argv[1])], **{choices})
assert png.startswith(bytes([0x89]) + b"PNG"), png[:10]
print(groups, [name for name in ("matplotlib", "pandas") if name in sys.modules], painter._process.pid)
"""


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Two strategies with two batches each."""
    rows = [
        {
            "key": f"{name}{batch}",
            "status": "ok",
            "strategy": name,
            "batch_per_device": batch,
            "tflops_per_chip": 1.0,
        }
        for name in ("fsdp", "tensor")
        for batch in (8, 16)
    ]
    path = tmp_path / "done.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_nothing_of_matplotlib_comes_into_the_kernel(results: Path) -> None:
    """A chart is drawn without matplotlib and pandas being read here, and its process ends with this one."""
    import psutil

    code = APART.replace("{choices}", repr(CHOICES))
    run = subprocess.run([sys.executable, "-c", code, results], capture_output=True, text=True, check=False)
    assert run.stdout.startswith("['fsdp', 'tensor'] [] "), run.stdout + run.stderr
    assert run.stderr == ""
    assert not psutil.pid_exists(int(run.stdout.split()[-1]))


async def test_a_process_that_ended_is_started_again(results: Path) -> None:
    """What went wrong is told as an error of ours, and neither that nor a killed process keeps the next chart away."""
    painter = Painter()
    try:
        with pytest.raises(ExperimentError, match="Nothing measured has embedding"):
            await painter.draw([results], **CHOICES | {"x": "embedding"})
        first = painter._process
        await painter.draw([results], only=["fsdp"], **CHOICES)
        assert painter._process is first
        assert first is not None
        first.kill()
        groups, _ = await painter.draw([results], **CHOICES)
        assert groups == ["fsdp", "tensor"]
        assert painter._process is not first
    finally:
        await painter.close()


async def test_a_choice_that_is_overtaken_does_not_answer_the_next(results: Path) -> None:
    """A question that is given up takes its process with it, so that its late answer is nobody's."""
    painter = Painter()
    try:
        given_up = asyncio.create_task(painter.draw([results], **CHOICES))
        while painter._process is None:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        assert painter._process is None
        with pytest.raises(ExperimentError, match="Nothing measured has embedding"):
            await painter.draw([results], **CHOICES | {"x": "embedding"})
    finally:
        await painter.close()
