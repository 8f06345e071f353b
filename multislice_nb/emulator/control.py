"""A hand on a running emulator: faults, time, state. What tests, the magic and the command line use."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from multislice_nb.emulator import daemon
from multislice_nb.emulator.address import EmulatorAddress, emulator_home
from multislice_nb.errors import EmulatorError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["EmulatorControl", "connect"]


@dataclass(frozen=True)
class EmulatorControl:
    """Makes things happen on an emulator.

    Attributes:
        address: Where it answers.
    """

    address: EmulatorAddress

    def status(self) -> dict[str, Any]:
        """How it is: states of queued resources and nodes, VMs, sessions, memory in bytes."""
        return daemon.call(self.address, "GET", "/emulator/v1/status")

    def fault_kinds(self) -> dict[str, str]:
        """What can be made to fail, with a line on each."""
        return dict(daemon.call(self.address, "GET", "/emulator/v1/faults")["kinds"])

    def inject(self, kind: str, **parameters: Any) -> None:
        """Make something fail.

        Args:
            kind: One of `fault_kinds()`.
            parameters: As that kind takes them.

        Raises:
            EmulatorError: There is no such fault, or it cannot happen now.
        """
        body = {"kind": kind, **parameters}
        daemon.call(self.address, "POST", "/emulator/v1/faults", body, timeout=_patience(parameters))

    def clear_faults(self) -> None:
        """Take back every fault that lasts; what has happened to slices stays."""
        daemon.call(self.address, "DELETE", "/emulator/v1/faults")

    def advance(self, seconds: float) -> None:
        """Move the emulator's clock forward, as for a request's validity to end."""
        daemon.call(self.address, "POST", "/emulator/v1/clock", {"advance": seconds})

    def set_time_factor(self, factor: float) -> None:
        """Set how long the steps of the lifecycle take: 1 is about a second in all, 0 is at once."""
        daemon.call(self.address, "POST", "/emulator/v1/clock", {"factor": factor})

    def startup_output(self, node: str, worker: int = 0) -> str:
        """What the startup script of a worker printed, of all boots of its VM."""
        path = f"/emulator/v1/startupOutput?node={quote(node, safe='')}&worker={worker}"
        return str(daemon.call(self.address, "GET", path)["output"])

    # The faults by name, for completion and readable tests.

    def preempt(self, node: str, *, warning: float = 0.0) -> None:
        """Take a spot slice away, `warning` seconds after its VMs were told."""
        self.inject("preempt", node=node, warning=warning)

    def maintenance(self, node: str, *, workers: list[int] | None = None, warning: float = 0.0) -> None:
        """Let a maintenance event happen, `warning` seconds after its VMs were told."""
        self.inject("maintenance", node=node, workers=workers, warning=warning)

    def hardware_failure(self, node: str, worker: int = 0) -> None:
        """Break the hardware of one worker."""
        self.inject("hardware-failure", node=node, worker=worker)

    def stock_out(self, generation: str, zone: str = "*") -> None:
        """Leave no free chips of a generation."""
        self.inject("stock-out", generation=generation, zone=zone)

    def capacity(self, generation: str, chips: int | None, zone: str = "*") -> None:
        """Set how many chips of a generation a zone has; None is no limit."""
        self.inject("capacity", generation=generation, chips=chips, zone=zone)

    def api_errors(self, status: str = "UNAVAILABLE", count: int = 1, method: str = "") -> None:
        """Refuse the next calls with a google.rpc code."""
        self.inject("api-errors", status=status, count=count, method=method)


def _patience(parameters: dict[str, Any]) -> float:
    warning = parameters.get("warning", 0.0)
    return 60.0 + (warning if isinstance(warning, int | float) else 0.0)


@contextlib.contextmanager
def connect() -> Iterator[EmulatorControl]:
    """A hand on the emulator that runs now.

    Raises:
        EmulatorError: None runs.
    """
    address = EmulatorAddress.read(emulator_home())
    if address is None or daemon.status() is None:
        raise EmulatorError(
            "No Cloud TPU emulator is running.", fix="Start one: python -m multislice_nb emulator start."
        )
    yield EmulatorControl(address)
