"""What runs on every worker: compile one configuration, run it step by step, say how long each step took.

Called on all workers as one gang. It needs jax and numpy, nothing of the notebook's, and returns plain data.

Every worker has to take the same decisions, or those that go on wait for ever in a collective for those that do
not. So whatever is decided here follows from the program, which is the same everywhere, or from an argument.
"""

from __future__ import annotations

import gc
import importlib.metadata
import os
import platform
import time
from typing import TYPE_CHECKING, TypedDict

import jax

from multislice_nb.experiments.memory import available_bytes, is_out_of_memory
from multislice_nb.experiments.programs import compiled, compiling_ahead, takes_part
from multislice_nb.experiments.training import keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from multislice_nb.experiments.configuration import Configuration
    from multislice_nb.experiments.programs import Program


class Survey(TypedDict):
    """What a worker says of itself before a sweep, and what ends up as provenance in each row."""

    platform: str
    device_kind: str
    devices: int
    processes: int
    emulated: bool
    available_bytes: int | None
    jax: str
    jaxlib: str
    libtpu: str | None
    python: str


class Measured(TypedDict):
    """What one worker measured. Bytes and FLOPs are per device."""

    status: str
    """`ok`, `oom`, or `idle` where this worker's slice takes no part."""
    message: str
    step_seconds: list[float]
    loss: float | None
    flops: float
    argument_bytes: int
    peak_bytes: int
    devices: int
    compile_seconds: float


def survey() -> Survey:
    """What this worker runs on. Memory is given where devices share the machine's own, in bytes."""
    device = jax.local_devices()[0]
    return {
        "platform": device.platform,
        "device_kind": device.device_kind,
        "devices": jax.device_count(),
        "processes": jax.process_count(),
        "emulated": "MULTISLICE_NB_EMULATED_VM" in os.environ,
        "available_bytes": available_bytes() if device.platform == "cpu" else None,
        "jax": jax.__version__,
        "jaxlib": importlib.metadata.version("jaxlib"),
        "libtpu": _version("libtpu"),
        "python": platform.python_version(),
    }


def measure(
    configuration: Configuration, *, memory_limit: int | None = None, ahead: Configuration | None = None
) -> Measured:
    """Compile a configuration and time its steps, each until its result is there.

    Args:
        configuration: What to measure.
        memory_limit: Bytes that all devices together may need; more counts as out of memory and is not tried. For
            workers that share one machine, where the operating system would kill something instead.
        ahead: What will be measured next: it is compiled while the steps of this one run.

    Returns:
        Seconds of each timed step on this worker, and the program's own figures. When the compiler or the limit
        says that memory is not enough, `status` is `oom` and there are no seconds.

    Raises:
        MemoryError: Memory ran out while running. The other workers may be waiting in a collective, so this has to
            stop them all.
    """
    if not takes_part(configuration):
        with compiling_ahead(ahead):
            return _told(None, status="idle")
    try:
        program = compiled(configuration)
    except jax.errors.JaxRuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return _out_of_memory(str(error).strip().splitlines()[0])
    need = program.peak_bytes * program.devices
    if memory_limit is not None and need > memory_limit:
        return _out_of_memory(
            f"Needs {need / 1e9:.2f} GB on this machine for {program.devices} devices; "
            f"{memory_limit / 1e9:.2f} GB may be used.",
            program,
        )
    try:
        with compiling_ahead(ahead):
            seconds, loss = _timed(program, configuration.steps, configuration.warmup)
    except jax.errors.JaxRuntimeError as error:
        if is_out_of_memory(error):
            raise MemoryError(str(error)) from error
        raise
    return _told(program, step_seconds=seconds, loss=loss)


def _timed(program: Program, steps: int, warmup: int) -> tuple[list[float], float]:
    key, batch_key = keys()
    state, batch = jax.block_until_ready((program.make_state(key), program.make_batch(batch_key)))
    seconds = []
    loss = jax.numpy.nan
    collecting = gc.isenabled()
    gc.disable()  # a collection in the middle of a step would be timed as the step's
    try:
        for _ in range(warmup + steps):
            begun = time.perf_counter()
            state, loss = jax.block_until_ready(program.step(state, batch))
            seconds.append(time.perf_counter() - begun)
    finally:
        if collecting:
            gc.enable()
    return seconds[warmup:], float(loss)


def _out_of_memory(message: str, program: Program | None = None) -> Measured:
    return _told(program, status="oom", message=message)


def _told(
    program: Program | None,
    *,
    status: str = "ok",
    message: str = "",
    step_seconds: Sequence[float] = (),
    loss: float | None = None,
) -> Measured:
    return {
        "status": status,
        "message": message,
        "step_seconds": list(step_seconds),
        "loss": loss,
        "flops": program.flops if program else 0.0,
        "argument_bytes": program.argument_bytes if program else 0,
        "peak_bytes": program.peak_bytes if program else 0,
        "devices": program.devices if program else 0,
        "compile_seconds": program.compile_seconds if program else 0.0,
    }


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
