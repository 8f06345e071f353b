"""Slices that are preempted or reset under a gang, and what becomes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import multislice_nb as ms
from multislice_nb import errors
from multislice_nb.cluster.health import Health
from multislice_nb.cluster.recovery import repair_seconds
from multislice_nb.config import Multislice
from multislice_nb.emulator import control

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from multislice_nb.cloud import QueuedResource
    from multislice_nb.cluster.progress import CellProgress

ENDLESS = "import time\nprint('running', flush=True)\ntime.sleep(1000)"


@pytest.fixture(scope="module")
def spot(emulator_home: Path) -> Iterator[QueuedResource]:
    """2 slices of v4-16 that can be preempted."""
    queued_resource = ms.connect().create("frail", accelerator_type="v4-16", node_count=2, spot=True)
    try:
        queued_resource.wait(timeout=60)
        yield queued_resource
    finally:
        queued_resource.delete(force=True)


@pytest.mark.timeout(240)
def test_a_preempted_slice_is_named_and_the_gang_recovers(spot: QueuedResource) -> None:
    """The cell ends with the node and its state and how to go on, and that works; over a whole gang it attaches."""
    cluster = ms.attach(spot)
    hit: list[bool] = []

    def preempt(progress: CellProgress) -> None:
        if "running" in str(progress) and not hit:
            hit.append(True)
            with control.connect() as emulator:
                emulator.inject("stock-out", generation="v4")  # so the repair waits
                emulator.preempt("frail-1")

    with pytest.raises(errors.WorkerLostError) as caught:
        cluster.run(ENDLESS, on_update=preempt)
    text = str(caught.value)
    assert text.startswith("Ranks 2-3 are gone: node frail-1 is PREEMPTED (")
    assert "The cell was stopped on ranks 0-1." in text
    assert "frail repairs itself; attach again with %multislice attach frail --recover" in text
    with pytest.raises(errors.WorkerLostError, match=r"frail-1 is PREEMPTED .*nothing was run"):
        cluster.run("1")
    with pytest.raises(errors.ConnectError, match="--recover"):
        ms.attach(spot)
    with pytest.raises(errors.WaitTimeoutError, match=r"not repaired within 2 s: node frail-1 is PREEMPTED"):
        ms.attach(spot, recover=True, repair_deadline=2)
    steps: list[str] = []

    def report(step: str) -> None:
        steps.append(step)
        if "frail-1 is PREEMPTED" in step:
            with control.connect() as emulator:
                emulator.clear_faults()

    again = ms.attach(spot, recover=True, report=report)
    assert any("waiting for the repair" in step for step in steps)
    assert again.run("import jax\nkept = jax.device_count()\nkept").values == [16] * 4
    found = ms.attach(spot, recover=True)
    assert found.run("kept").values == [16] * 4
    found.shutdown()


@pytest.mark.timeout(240)
def test_a_reset_is_named_and_the_gang_recovers(spot: QueuedResource) -> None:
    """A reset ends every engine without a trace: the cell says so, and recovery starts a new gang."""
    cluster = ms.attach(spot)
    hit: list[bool] = []

    def reset(progress: CellProgress) -> None:
        if "running" in str(progress) and not hit:
            hit.append(True)
            spot.reset()

    with pytest.raises(errors.WorkerLostError) as caught:
        cluster.run(ENDLESS, on_update=reset)
    text = str(caught.value)
    assert "gone: node frail-0 " in text
    assert any(words in text for words in ("was reset", "is RESTARTING", "does not answer"))
    assert "%multislice attach frail --recover" in text
    again = ms.attach(spot, recover=True)
    assert again.run("1").values == [1] * 4
    again.shutdown()


def test_what_does_not_come_back_is_refused(emulator_home: Path) -> None:
    """A slice that was alone and is preempted suspends its queued resource: recovery says to recreate it."""
    alone = ms.connect().create("alone", accelerator_type="v4-8", spot=True)
    try:
        alone.wait(timeout=60)
        with control.connect() as emulator:
            emulator.preempt("alone")
        with pytest.raises(errors.QueuedResourceFailedError, match="recreate alone"):
            ms.attach(alone, recover=True)
    finally:
        alone.delete(force=True)


def test_advice_follows_from_what_is_left() -> None:
    """Several slices repair themselves while ACTIVE; one that is alone does not come back from a preemption."""
    several = Health("demo", "ACTIVE", ("demo-0", "demo-1"), {0: "READY", 1: "PREEMPTED"})
    assert several.trouble(0) == ""
    assert several.trouble(1) == "node demo-1 is PREEMPTED"
    assert "repairs itself" in several.advice
    alone = Health("demo", "ACTIVE", ("demo",), {0: "PREEMPTED"})
    assert "recreate demo" in alone.advice
    assert Health("demo", "ACTIVE", ("demo",), {0: "REPAIRING"}).repairs_itself
    assert "demo is SUSPENDED" in Health("demo", "SUSPENDED", ("demo",), {}).advice
    assert "deleted" in Health("demo", "", ("demo",), {}).advice


def test_the_deadline_of_a_repair_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """An argument beats %config, which beats the environment, which beats half an hour."""
    assert repair_seconds(None) == 1800
    monkeypatch.setenv("MULTISLICE_NB_REPAIR_DEADLINE", "60")
    assert repair_seconds(None) == 60
    monkeypatch.setattr(Multislice.instance(), "repair_deadline", 70.0)
    assert repair_seconds(None) == 70
    assert repair_seconds(80) == 80
    monkeypatch.setattr(Multislice.instance(), "repair_deadline", None)
    monkeypatch.setenv("MULTISLICE_NB_REPAIR_DEADLINE", "soon")
    with pytest.raises(errors.ConfigurationError, match="soon"):
        repair_seconds(None)
