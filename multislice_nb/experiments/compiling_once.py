"""Workers that share a machine compile a program once: the first of them does, the others load what it made.

Every process of a gang compiles the same program. On TPUs each does so on its own host at the same time, so that
sharing would save nothing. Emulated workers compete for the processors of one machine, where compiling is most of
what a configuration costs.

JAX can share compiled programs itself (`jax_share_binary_between_hosts`), but there a worker waits for the whole
time limit when the first one could not compile, and it needs a cache folder that all see.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import time
from typing import TYPE_CHECKING, Any

import jax

from multislice_nb.errors import ExperimentError

if TYPE_CHECKING:
    from collections.abc import Iterable

_DEADLINE = 600.0
"""Seconds after which a worker gives up waiting for the first one; a worker that is lost ends the gang before."""
_LOOK = 1.0
"""Seconds of one wait in C++, during which an interrupt is not seen."""
_NOT_COMPILED = b""


def compile_once(lowered: jax.stages.Lowered, devices: Iterable[jax.Device]) -> jax.stages.Compiled:
    """Compile a program, or load it from the process that has, if that is on this machine.

    The program's own text names it, so that what is loaded is what would have been compiled here. When the first
    process cannot compile it, all try, and end with the same error.

    Args:
        lowered: The program, the same in all processes of `devices`.
        devices: What it runs on. The process of the lowest index among them compiles.

    Raises:
        ExperimentError: The first process did not say in time what came of it.
        jax.errors.JaxRuntimeError: It does not compile.
    """
    store = _store()
    devices = list(devices)
    processes = {device.process_index for device in devices}
    if store is None or len(processes) == 1:
        return lowered.compile()
    name = _name(lowered, devices)
    first = min(processes)
    if jax.process_index() == first:
        return _published(store, name, lowered)
    found = _awaited(store, name, first)
    return lowered.compile() if found == _NOT_COMPILED else _loaded(found)


def _name(lowered: jax.stages.Lowered, devices: list[jax.Device]) -> str:
    """Of a program and where it runs: its text has the shape of the mesh, and not which device is where in it."""
    program = f"{[device.id for device in devices]}\0{lowered.as_text()}"
    return f"multislice_nb/program/{hashlib.sha256(program.encode()).hexdigest()}"


def _store() -> Any:
    """The key-value store that the processes of an emulated gang share; None elsewhere."""
    if "MULTISLICE_NB_EMULATED_VM" not in os.environ:
        return None
    from jax._src import distributed

    return distributed.global_state.client


def _published(store: Any, name: str, lowered: jax.stages.Lowered) -> jax.stages.Compiled:
    from jax.experimental.serialize_executable import serialize

    program = _NOT_COMPILED
    try:
        compiled = lowered.compile()
        program = pickle.dumps(serialize(compiled))
        return compiled
    finally:  # also after a failure, or the others would wait
        store.key_value_set_bytes(name, program, allow_overwrite=True)


def _awaited(store: Any, name: str, first: int) -> bytes:
    deadline = time.monotonic() + _DEADLINE
    while time.monotonic() < deadline:
        try:
            found: bytes = store.blocking_key_value_get_bytes(name, int(1000 * _LOOK))
        except jax.errors.JaxRuntimeError as error:
            if "DEADLINE_EXCEEDED" not in str(error):
                raise
        else:
            return found
    raise ExperimentError(
        f"Process {first} has compiled no program within {_DEADLINE:.0f} s for this one to load.",
        fix="Restart the workers; a program that takes so long to compile is too large for the emulator.",
    )


def _loaded(program: bytes) -> jax.stages.Compiled:
    from jax.experimental.serialize_executable import deserialize_and_load

    loaded: jax.stages.Compiled = deserialize_and_load(*pickle.loads(program))  # noqa: S301 - of our own process
    return loaded
