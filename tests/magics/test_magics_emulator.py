"""`%multislice emulator`: a hand on the emulator from the notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from multislice_nb.errors import EmulatorError, InvalidRequestError, MagicError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Run = Callable[[str], Any]


@pytest.fixture
def spot(emulator_home: Path, run: Run) -> Iterator[str]:
    """A spot queued resource that is ACTIVE."""
    run("%multislice connect --emulator")
    run("%multislice create chance --accelerator-type v4-8 --node-count 2 --spot --wait")
    yield "chance"
    run("%multislice emulator fault --clear")
    run("%multislice delete chance")


def test_faults_are_listed(emulator_home: Path, run: Run) -> None:
    """Without a name, every kind is named with a line on it."""
    text = str(run("%multislice emulator fault"))
    assert "preempt" in text
    assert "stock-out" in text


def test_a_slice_is_preempted(run: Run, spot: str) -> None:
    """A fault named in a line happens, and the node says so."""
    run("%multislice emulator fault stock-out generation=v4")
    run(f"%multislice emulator fault preempt node={spot}-1")
    nodes = run(f"%multislice describe {spot}")
    assert "PREEMPTED" in str(nodes) or "REPAIRING" in str(nodes) or "CREATING" in str(nodes)


def test_mistakes_are_told(emulator_home: Path, run: Run) -> None:
    """A fault that does not exist, a parameter without a value, and words that mean nothing are refused."""
    with pytest.raises(EmulatorError):
        run("%multislice emulator fault nothing-like-it")
    with pytest.raises(InvalidRequestError, match="name=value"):
        run("%multislice emulator fault preempt demo")
    with pytest.raises(MagicError):
        run("%multislice emulator stop now")


def test_env_points_elsewhere_without_a_secret(emulator_home: Path, run: Run) -> None:
    """The variables are shown as %env lines, and the token is not among them."""
    text = str(run("%multislice emulator env"))
    assert "%env CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU=" in text
    assert (emulator_home / "emulator" / "token").read_text() not in text
