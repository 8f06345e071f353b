"""As many slices as a queued resource can have, for users' own suites too."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import psutil

from multislice_nb.emulator import daemon

if TYPE_CHECKING:
    import pytest

    from multislice_nb.emulator.control import EmulatorControl
    from tests.emulator.emulated_tpu import PARENT, Emulated
else:
    from emulated_tpu import PARENT, Emulated

pytest_plugins = ["multislice_nb.testing"]


def test_256_slices_start_no_process() -> None:
    """256 slices of v4-128 are ACTIVE, listed and described; their 4096 workers are sockets, and one can be used."""
    from multislice_nb.testing import emulator

    with emulator() as control:
        emulated = Emulated(control.address)
        emulated.active("huge", 256, "v4-128")
        assert len(emulated.get("huge")["tpu"]["nodeSpec"]) == 256
        nodes, token = [], ""
        while True:
            page = emulated.rest("GET", f"/v2/{PARENT}/nodes?pageToken={token}").body
            nodes += page["nodes"]
            token = page.get("nextPageToken", "")
            if not token:
                break
        assert len(nodes) == 256
        addresses = {endpoint["ipAddress"] for node in nodes for endpoint in node["networkEndpoints"]}
        assert len(addresses) == 4096
        status = control.status()
        assert (status["vms"], status["vmsWithProcesses"]) == (4096, 0)
        assert not psutil.Process(control.address.pid).children()
        assert status["memoryBytes"] < 400e6
        assert (
            emulated.ssh("huge-255", "echo $MEGASCALE_SLICE_ID $TPU_WORKER_ID", worker=15).stdout
            == b"255 15\n"
        )
        emulated.delete("huge")


def test_the_context_manager_gives_the_environment_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside, the state folder is the emulator's; afterwards the environment and the processes are as before."""
    monkeypatch.setenv("MULTISLICE_NB_HOME", "/nowhere")
    from multislice_nb.testing import emulator

    with emulator() as control:
        assert os.environ["MULTISLICE_NB_HOME"] == str(control.address.home.parent)
        assert daemon.status() is not None
        pids = [control.address.pid, control.address.reaper_pid]
    assert os.environ["MULTISLICE_NB_HOME"] == "/nowhere"
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert not control.address.home.exists()


def test_the_fixture_is_an_emulator_with_a_fast_clock(multislice_emulator: EmulatorControl) -> None:
    """A user's test gets an emulator of its own and the fault API by naming the fixture."""
    assert multislice_emulator.status()["timeFactor"] == 0
    Emulated(multislice_emulator.address).active("mine", 2)
