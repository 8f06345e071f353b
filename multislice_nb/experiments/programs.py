"""Compiled configurations on a worker: kept for a while, and made ahead while another one runs."""

from __future__ import annotations

import contextlib
import functools
import math
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import jax

from multislice_nb.errors import ExperimentError
from multislice_nb.experiments.compiling_once import compile_once
from multislice_nb.experiments.training import arguments, initial_batch, initial_state, keys, train_step
from multislice_nb.sharding import make_mesh
from multislice_nb.sharding.hlo import Module
from multislice_nb.sharding.program import loop_flops

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jax.sharding import Mesh

    from multislice_nb.experiments.configuration import Configuration
    from multislice_nb.experiments.training import Options, State
    from multislice_nb.experiments.workload import Tree, Workload

_KEPT = 8
"""Programs of each kind kept on a worker, so that a repeated measurement does not compile again."""


class Program(NamedTuple):
    """A compiled configuration. Bytes and FLOPs are per device."""

    make_state: Callable[[jax.Array], State]
    make_batch: Callable[[jax.Array], Tree]
    step: Callable[[State, Tree], tuple[State, jax.Array]]
    flops: float
    argument_bytes: int
    peak_bytes: int
    devices: int
    compile_seconds: float


class _Lowered(NamedTuple):
    """The parts of a configuration as the compiler takes them, and the seconds that this took."""

    make_batch: jax.stages.Lowered
    step: jax.stages.Lowered
    seconds: float


def compiled(configuration: Configuration) -> Program:
    """The training step of a configuration and the functions that make its arguments.

    The figures are the compiled program's own: FLOPs as a step runs them, and the memory of the largest of the three.

    Raises:
        ExperimentError: The compiler does not tell FLOPs or memory.
        jax.errors.JaxRuntimeError: It does not compile, perhaps for want of memory.
    """
    return _compiled(*_parts(configuration))


@contextlib.contextmanager
def compiling_ahead(configuration: Configuration | None) -> Iterator[None]:
    """Compile another configuration while the block runs, and wait for that at its end.

    Tracing, which would hold back the thread that dispatches steps, is done before the block. If it does not
    compile, its own turn will say why.
    """
    if configuration is None or not takes_part(configuration):
        yield
        return
    parts = _parts(configuration)
    _lowered(*parts)
    thread = threading.Thread(target=_quietly, args=parts, name="compile ahead", daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def takes_part(configuration: Configuration) -> bool:
    """Whether a device of this process belongs to the slices that a configuration runs on.

    A process that does not may not even run the program: there is nothing of it to run.
    """
    here = jax.process_index()
    return any(device.process_index == here for device in _devices(configuration.slices))


@functools.lru_cache
def _devices(slices: int) -> tuple[jax.Device, ...]:
    """All devices of the first so many slices; of devices that know no slice, as CPU devices of one process, all."""
    devices = jax.devices()
    of_device = [getattr(device, "slice_index", 0) for device in devices]
    chosen = sorted(set(of_device))[:slices]
    return tuple(device for device, index in zip(devices, of_device, strict=True) if index in chosen)


def _quietly(*parts: Any) -> None:
    with contextlib.suppress(Exception):  # raised again when its turn comes
        _compiled(*parts)


def _parts(configuration: Configuration) -> tuple[Workload, Mesh, int, Options]:
    """What makes the program: neither the name of the strategy nor how often it is timed."""
    mesh = make_mesh(configuration.parallelism, _devices(configuration.slices))
    batch = configuration.batch_per_device * mesh.devices.size
    return configuration.workload, mesh, batch, configuration.options


@functools.lru_cache(maxsize=_KEPT)
def _lowered(workload: Workload, mesh: Mesh, batch: int, options: Options) -> _Lowered:
    begun = time.perf_counter()
    shapes = arguments(workload, mesh, batch, options)
    return _Lowered(
        make_batch=initial_batch(workload, mesh, batch).lower(keys()[1]),
        step=train_step(workload, mesh, options).lower(*shapes),
        seconds=time.perf_counter() - begun,
    )


@functools.lru_cache(maxsize=_KEPT)
def _state_maker(workload: Workload, mesh: Mesh, options: Options) -> jax.stages.Compiled:
    """Kept apart: it is the same for all batch sizes."""
    return compile_once(initial_state(workload, mesh, options).lower(keys()[0]), mesh.devices.flat)


@functools.lru_cache(maxsize=_KEPT)
def _compiled(workload: Workload, mesh: Mesh, batch: int, options: Options) -> Program:
    lowered = _lowered(workload, mesh, batch, options)
    begun = time.perf_counter()
    make_state = _state_maker(workload, mesh, options)
    make_batch, step = (compile_once(one, mesh.devices.flat) for one in (lowered.make_batch, lowered.step))
    costs, sizes = step.cost_analysis(), step.memory_analysis()
    of_state, of_batch = make_state.memory_analysis(), make_batch.memory_analysis()
    if costs is None or sizes is None or of_state is None or of_batch is None:
        raise ExperimentError(
            f"The compiler for {mesh.devices.flat[0].device_kind} does not tell FLOPs and memory of a program.",
            fix="Measure on TPUs or on the CPU.",
        )
    state_bytes = of_state.output_size_in_bytes  # there already while the batch is made
    return Program(
        make_state=make_state,
        make_batch=make_batch,
        step=step,
        flops=float(costs["flops"]) + _flops_of_loops(step),
        argument_bytes=sizes.argument_size_in_bytes,
        peak_bytes=max(_peak(sizes), _peak(of_state), state_bytes + _peak(of_batch)),
        devices=mesh.devices.size,
        compile_seconds=lowered.seconds + time.perf_counter() - begun,
    )


def _flops_of_loops(step: jax.stages.Compiled) -> float:
    """FLOPs that the compiler's count leaves out: of the body of a loop, as of `lax.scan`, it counts one round."""
    text = step.as_text() or ""
    extra = loop_flops(Module.parse(text)) if " while(" in text else 0.0
    if math.isnan(extra):
        raise ExperimentError(
            "The training step has a loop of which nobody knows how often it runs, so its FLOPs cannot be counted.",
            fix="Give the loop a fixed number of rounds, as lax.scan and lax.fori_loop with constants do.",
        )
    return extra


def _peak(sizes: Any) -> int:
    """Bytes of a device while a program runs: what it is given, what it returns elsewhere, and temporaries."""
    returned = sizes.output_size_in_bytes - sizes.alias_size_in_bytes
    return int(sizes.argument_size_in_bytes + returned + sizes.temp_size_in_bytes)
