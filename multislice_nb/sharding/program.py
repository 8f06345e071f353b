"""What a compiled program computes and moves on one device: FLOPs, collectives over ICI, transfers over DCN."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from multislice_nb.sharding.hlo import Computation, Instruction, Module

__all__ = [
    "Collective",
    "collectives",
    "collectives_of",
    "dcn_payload",
    "group_size",
    "instruction_flops",
    "loop_flops",
    "matmul_flops",
    "remat_flops",
    "transfer",
]

# What a member of a group of n receives, for each byte of the whole array: scaling-book, sharding.md.
_KINDS = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all", "collective-permute")
_MEGASCALE = 'handler_name="xla_megascale_runtime"'
_TRANSFER = r'_xla_megascale_transfer_type="(\w+)"'
_RENDEZVOUS = r'_xla_host_transfer_rendezvous="([^"]+)"'
_WINDOW = re.compile(r"window=\{([^}]*)\}")
_LABELS = re.compile(r"dim_labels=(\w+)_(\w+)->(\w+)")


class Collective(NamedTuple):
    """A collective over ICI in one run of its computation."""

    kind: str
    bytes: float
    members: int
    channel: str


def collectives(module: Module) -> dict[str, float]:
    """Bytes that a device receives over ICI in a step, by kind; loops multiplied out.

    Asynchronous pairs and fusions name the same collective more than once: one is counted for each channel.
    """
    totals: dict[str, float] = defaultdict(float)
    seen: set[str] = set()
    for computation in module.computations.values():
        for found in _of_computation(computation):
            runs = module.runs[computation.name]
            if found.channel in seen or runs == 0:
                continue
            seen.add(found.channel)
            totals[found.kind] += found.bytes * runs
    return {kind: amount for kind, amount in totals.items() if amount}


def _of_computation(computation: Computation) -> Iterator[Collective]:
    scatters = "reduce-scatter" in computation.name or "all-reduce-scatter" in computation.name
    for instruction in computation.instructions:
        kind = instruction.opcode.removesuffix("-start")
        if kind in _KINDS:
            yield _collective(instruction, kind, scattered=scatters)


def collectives_of(module: Module, instruction: Instruction) -> list[Collective]:
    """Collectives that an instruction waits for: itself, or those that its fusion is made of.

    One that is started early and awaited later, or that runs inside a computing fusion, hides behind computation.
    """
    if instruction.opcode in _KINDS:
        return [_collective(instruction, instruction.opcode, scattered=False)]
    return [
        found
        for callee in instruction.callees
        if "all-reduce-scatter" in callee and instruction.opcode == "fusion"
        for found in _of_computation(module.computations[callee])
    ]


def _collective(instruction: Instruction, kind: str, *, scattered: bool) -> Collective:
    """Bytes received by a device. An all-reduce in an all-reduce-scatter fusion is a reduce-scatter."""
    members = group_size(instruction.attributes)
    results = instruction.shapes
    if instruction.opcode.endswith("-start") and kind in {"all-gather", "collective-permute"}:
        results = results[1:2]  # the first is the operand
    size = sum(shape.bytes for shape in results)
    share = (members - 1) / members if members else 1.0
    if kind == "all-reduce" and scattered:
        kind = "reduce-scatter"
    elif kind == "reduce-scatter":
        size *= members
    received = {
        "all-gather": size * share,
        "reduce-scatter": size * share,
        "all-reduce": size * 2 * share,
        "all-to-all": size * share,
        "collective-permute": size,
    }[kind]
    # Permutes that have nothing in common may share a channel; any other collective has one of its own.
    channel = None if kind == "collective-permute" else instruction.attribute(r"channel_id=(\d+)")
    return Collective(kind, received, members, f"{kind}/{channel}" if channel else instruction.name)


def group_size(attributes: str) -> int:
    """Members of a replica group, in any of the forms that XLA writes; 0 when there are no groups."""
    if found := re.search(r"replica_groups=\{\{([0-9,]+)\}", attributes):
        return found[1].count(",") + 1
    if found := re.search(r"replica_groups=\[(\d+),(\d+)\]<=", attributes):
        return int(found[2])
    if found := re.search(r"replica_groups=mesh\[([^\]]*)\]\s*\{([^}]*)\}", attributes):
        sizes = dict(re.findall(r"'([^']+)'=(\d+)", found[1]))
        return math.prod(int(sizes[axis]) for axis in re.findall(r"'([^']+)'", found[2]) if axis in sizes)
    return 0


def transfer(instruction: Instruction) -> tuple[str, str, float] | None:
    """Kind, rendezvous and bytes of a send over DCN; None for any other instruction."""
    if instruction.opcode != "send" or _MEGASCALE not in instruction.attributes:
        return None
    kind = instruction.attribute(_TRANSFER) or "UNKNOWN"
    name = instruction.attribute(_RENDEZVOUS) or instruction.name
    return kind.lower().replace("_", "-"), name, instruction.shapes[0].bytes


def dcn_payload(module: Module) -> dict[str, float]:
    """Bytes that a device hands to DCN in a step, by kind; loops multiplied out."""
    totals: dict[str, float] = defaultdict(float)
    seen: set[str] = set()
    for computation, instruction in module.all_instructions():
        sent = transfer(instruction)
        if sent and sent[1] not in seen:
            seen.add(sent[1])
            totals[sent[0]] += sent[2] * module.runs[computation.name]
    return {kind: amount for kind, amount in totals.items() if amount}


def matmul_flops(module: Module, name: str) -> float:
    """FLOPs of the matrix products in one run of a computation and of what it calls, but for loops."""
    computation = module.computations.get(name)
    if computation is None:
        return 0.0
    return sum(instruction_flops(module, computation, one) for one in computation.instructions)


def instruction_flops(module: Module, computation: Computation, instruction: Instruction) -> float:
    """FLOPs of the matrix products of one instruction: its own, or of the fusion that it runs once."""
    if instruction.opcode == "dot":
        return _dot_flops(computation, instruction)
    if instruction.opcode == "convolution":
        return _convolution_flops(computation, instruction)
    if instruction.opcode in {"fusion", "call", "async-start", "conditional"}:
        return sum(matmul_flops(module, callee) for callee in instruction.callees)
    return 0.0


def remat_flops(module: Module) -> float:
    """FLOPs of the matrix products that the compiler computes a second time to save memory.

    It marks the second by its name. Where the first is gone nothing is computed twice.
    """
    total = 0.0
    for computation in module.computations.values():
        names = {one.name for one in computation.instructions}
        for one in computation.instructions:
            first, mark, _ = one.name.partition(".remat")
            if mark and first in names and module.runs[computation.name]:
                total += instruction_flops(module, computation, one) * module.runs[computation.name]
    return total


def loop_flops(module: Module) -> float:
    """FLOPs that the compiler's own count leaves out, since it counts the body of a loop once.

    Only matrix products are counted; what else a body computes is a small part of it.
    """
    direct = {name: _own_flops(module, name) for name in module.computations}
    return sum(
        (module.runs[name] - module_runs) * direct[name]
        for name, module_runs in _runs_with_loops_once(module).items()
        if direct[name]
    )


def _own_flops(module: Module, name: str) -> float:
    """FLOPs of the matrix products that stand in a computation itself."""
    computation = module.computations[name]
    return sum(
        instruction_flops(module, computation, one)
        for one in computation.instructions
        if one.opcode in {"dot", "convolution"}
    )


def _runs_with_loops_once(module: Module) -> dict[str, float]:
    counts = dict.fromkeys(module.computations, 0.0)
    counts[module.entry] = 1.0
    for name in module.callers_first():
        for instruction in module.computations[name].instructions:
            for callee in instruction.callees:
                if callee in counts:
                    counts[callee] += counts[name]
    return counts


def _dot_flops(computation: Computation, instruction: Instruction) -> float:
    left = computation.shape_of(instruction.operands[0])
    dims = instruction.attribute(r"lhs_contracting_dims=\{([0-9,]*)\}")
    if left is None or dims is None:
        return 0.0
    contracted = math.prod(left.dims[int(at)] for at in dims.split(",") if at)
    return 2.0 * instruction.shapes[0].elements * contracted


def _convolution_flops(computation: Computation, instruction: Instruction) -> float:
    """A matrix product on a TPU is a convolution; where it is batched, over a window that skips."""
    left, right = (computation.shape_of(name) for name in instruction.operands[:2])
    labels = _LABELS.search(instruction.attributes)
    if left is None or right is None or labels is None:
        return 0.0
    out = instruction.shapes[0]
    window = _WINDOW.search(instruction.attributes)
    settings = dict(part.split("=") for part in window[1].split()) if window else {}
    flops = 2.0 * out.dims[labels[3].index("b")] * out.dims[labels[3].index("f")]
    flops *= right.dims[labels[2].index("i")]
    for number, label in enumerate(sorted(set(labels[2]) - set("io"))):
        flops *= _valid_pairs(
            left.dims[labels[1].index(label)],
            right.dims[labels[2].index(label)],
            out.dims[labels[3].index(label)],
            {name: _nth(value, number) for name, value in settings.items()},
        )
    return flops


def _nth(value: str, number: int) -> str:
    parts = value.split("x")
    return parts[min(number, len(parts) - 1)]


def _valid_pairs(size: int, kernel: int, out: int, settings: dict[str, str]) -> int:
    """Pairs of output and kernel positions that meet an element of the input, along one dimension."""
    stride = int(settings.get("stride", 1))
    low = int(settings.get("pad", "0_0").split("_")[0])
    spread, gap = int(settings.get("lhs_dilate", 1)), int(settings.get("rhs_dilate", 1))
    reach = (size - 1) * spread
    return sum(
        0 <= place <= reach and place % spread == 0
        for at in range(out)
        for place in range(at * stride - low, at * stride - low + kernel * gap, gap)
    )
