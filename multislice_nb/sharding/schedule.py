"""The order in which a compiled program computes, talks over ICI and waits for DCN, and how long that takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from multislice_nb.sharding.cost import Prediction, ici_bytes_per_second
from multislice_nb.sharding.intensity import ring_factor
from multislice_nb.sharding.program import (
    collectives_of,
    instruction_flops,
    matmul_flops,
    transfer,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from multislice_nb import tpu
    from multislice_nb.sharding.calibration import Calibration
    from multislice_nb.sharding.hlo import Instruction, Module

__all__ = ["Event", "events", "simulate"]

# FLOPs of one chip in a cycle: TensorCores x 4 MXUs x 128 x 128 x 2 (Cloud TPU documentation, v4, v5e and v5p), so
# that the clock is the peak over this. The compiler's cycles are of another kind on v6e and TPU7x.
_FLOPS_PER_CYCLE = {"v4": 2 * 4 * 128 * 128 * 2, "v5e": 4 * 128 * 128 * 2, "v5p": 2 * 4 * 128 * 128 * 2}
_LARGEST_ESTIMATE = 10**15  # cycles; beyond it the compiler's estimate has overflowed


class Event(NamedTuple):
    """One thing that happens on a device.

    Attributes:
        kind: `compute`, `ici`, `send` or `receive`.
        amount: Cycles of a computation, bytes of a transfer.
        flops: Of a computation's matrix products.
        members: Devices of a collective over ICI.
        name: What a send and a receive have in common, after the kind of transfer.
    """

    kind: str
    amount: float = 0.0
    flops: float = 0.0
    members: int = 0
    name: str = ""


def events(module: Module) -> list[Event]:
    """What a step does, in the order that the compiler has scheduled; neighbouring computations are merged."""
    merged: list[Event] = []
    for event in _events(module, module.entry):
        last = merged[-1] if merged else None
        # Cycles are not known of every computation: those without are timed by their FLOPs, so kept apart.
        if last and event.kind == last.kind == "compute" and bool(event.amount) == bool(last.amount):
            merged[-1] = last._replace(amount=last.amount + event.amount, flops=last.flops + event.flops)
        else:
            merged.append(event)
    return merged


def _events(module: Module, name: str) -> Iterator[Event]:
    computation = module.computations[name]
    by_name = {one.name: one for one in computation.instructions}
    for instruction in computation.instructions:
        if sent := transfer(instruction):
            yield Event("send", sent[2], name=f"{sent[0]} {sent[1]}")
        elif instruction.opcode == "recv-done" and (name_of := _rendezvous(instruction, by_name)):
            yield Event("receive", name=name_of)
        elif instruction.opcode == "while":
            for callee in instruction.callees:
                inside = list(_events(module, callee))
                trips = module.trips(computation, instruction) or 1
                yield from (
                    one._replace(amount=one.amount * trips, flops=one.flops * trips) for one in inside
                )
        else:
            yield from _work(module, name, instruction)


def _rendezvous(instruction: Instruction, by_name: dict[str, Instruction]) -> str:
    """The name under which what is waited for was sent."""
    source = by_name.get(instruction.operands[0]) if instruction.operands else None
    name = source.attribute(r'_xla_host_transfer_rendezvous="([^"]+)"') if source else None
    return name or ""


def _work(module: Module, name: str, instruction: Instruction) -> Iterator[Event]:
    """Computation, and collectives that are not started early: those hide behind it."""
    yield from (
        Event("ici", found.bytes, members=found.members) for found in collectives_of(module, instruction)
    )
    cycles = instruction.attribute(r'"estimated_cycles":"(\d+)"')
    flops = (
        instruction_flops(module, module.computations[name], instruction)
        if instruction.opcode != "conditional"
        else max((matmul_flops(module, callee) for callee in instruction.callees), default=0.0)
    )
    if cycles or flops:
        amount = float(cycles or 0)
        yield Event("compute", amount if amount < _LARGEST_ESTIMATE else 0.0, flops)


def simulate(
    timeline: Iterable[Event | Sequence[object]],
    *,
    shape: tpu.AcceleratorType,
    slices: int,
    flops: float,
    calibration: Calibration,
    generation: tpu.Generation | None = None,
) -> Prediction:
    """How long the events take: DCN carries one transfer after the other while the device goes on computing.

    Args:
        timeline: From `events`.
        shape: The slice.
        slices: How many.
        flops: FLOPs of the step on one device, as the compiler counts them.
        calibration: Efficiencies; the one of matrix products counts only where the compiler estimates no cycles.
        generation: Hardware numbers of your own.
    """
    kind = generation or shape.generation
    peak = kind.bf16_flops_per_chip / kind.devices_per_chip
    per_cycle = _FLOPS_PER_CYCLE.get(kind.name)
    dcn = kind.dcn_bits_per_second_per_chip / kind.devices_per_chip * calibration.dcn_efficiency / 8
    happened = [event if isinstance(event, Event) else Event(*event) for event in timeline]  # type: ignore[arg-type]  # JSON's lists
    now = compute = ici = waited = busy = free = 0.0
    arrivals: dict[str, float] = {}
    for event in happened:
        before = now
        if event.kind == "compute":
            now += event.amount / (peak / per_cycle) if per_cycle and event.amount else 0.0
            if not (per_cycle and event.amount):
                now += event.flops / (peak * calibration.matmul_efficiency)
            compute += now - before
        elif event.kind == "ici":
            now += event.amount / (
                ici_bytes_per_second(shape, event.members or None, kind) / kind.devices_per_chip
            )
            ici += now - before
        elif event.kind == "send":
            transfer_kind, _, name = event.name.partition(" ")
            seconds = event.amount * wire_factor(transfer_kind, slices) / dcn
            free = max(free, now) + seconds
            busy += seconds
            arrivals[name] = free
        else:
            now = max(now, arrivals.get(event.name, now))
            waited += now - before
    return Prediction(
        flops=flops * kind.devices_per_chip,
        peak=kind.bf16_flops_per_chip,
        compute_seconds=compute,
        hbm_seconds=0.0,
        ici_seconds=ici,
        dcn_seconds=busy,
        exposed_dcn_seconds=waited,
    )


def wire_factor(kind: str, slices: int) -> float:
    """Bytes that cross DCN for each byte handed to it."""
    return {
        "all-reduce": ring_factor(slices),
        "all-gather": slices - 1.0,
        "reduce-scatter": ring_factor(slices) / 2,
    }.get(kind, 1.0)
