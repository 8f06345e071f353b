"""Our part inside an engine before any cell runs: its way into the gang's jax.distributed."""

from __future__ import annotations

import socket
from typing import Any

from multislice_nb import _ports
from multislice_nb.cluster.attempt import attempt

__all__ = ["hold_port", "initialize", "reach_port"]

_coordinator: socket.socket | None = None
"""Holds the coordinator's port on process 0 until the coordinator itself does."""


def hold_port(address: str, first: int) -> dict[str, Any]:
    """A port at this worker's address that nobody else holds, from `first` upwards, held and answered from now on."""

    def body() -> int:
        global _coordinator  # noqa: PLW0603 - an engine has one
        _release_port()
        port = _ports.free_port(address, first)
        _coordinator = socket.create_server((address, port), backlog=1024)
        return port

    return attempt(body, "hold_port")


def reach_port(address: str, port: int, timeout: float) -> dict[str, Any]:
    """Try whether the coordinator's port answers this worker, which a firewall may not allow."""

    def body() -> None:
        socket.create_connection((address, port), timeout=timeout).close()

    return attempt(body, "reach_port")


def _release_port() -> None:
    global _coordinator  # noqa: PLW0603 - as above
    if _coordinator is not None:
        _coordinator.close()
        _coordinator = None


def initialize(
    coordinator_address: str, num_processes: int, process_id: int, timeout: int, heartbeat: int
) -> dict[str, Any]:
    """Join the gang's jax.distributed, with everything said explicitly.

    Nothing is left to detection, which fails on some queued resources, nor to a default port, which moved
    between JAX releases and is closed by older firewall rules.
    """

    def body() -> dict[str, Any]:
        import jax

        _release_port()
        jax.distributed.initialize(
            coordinator_address=coordinator_address,
            num_processes=num_processes,
            process_id=process_id,
            cluster_detection_method="deactivate",
            initialization_timeout=timeout,
            heartbeat_timeout_seconds=heartbeat,
            coordinator_bind_address=coordinator_address if process_id == 0 else None,
        )
        return _devices()

    return attempt(body, "jax.distributed.initialize")


def _devices() -> dict[str, Any]:
    import jax

    local = jax.local_devices()
    return {
        "jax": jax.__version__,
        "backend": jax.default_backend(),
        "device_kind": local[0].device_kind,
        "device_count": jax.device_count(),
        "local_device_count": len(local),
        "process_index": jax.process_index(),
        "slice_index": getattr(local[0], "slice_index", 0),
    }
