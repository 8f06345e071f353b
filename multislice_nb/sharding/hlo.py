"""Reading a compiled program: XLA's HLO text as computations of instructions."""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from multislice_nb.sharding.loops import trip_count

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Computation", "Instruction", "Module", "Shape"]

_BITS = {"pred": 8, "token": 0, "opaque": 0, "bf16": 16}
_SHAPE = re.compile(r"\b([a-z][a-z0-9]*)\[([0-9,]*)\]")
_HEADER = re.compile(r"^(ENTRY )?%?([\w.-]+) \(.*\) -> .*\{$")
_INSTRUCTION = re.compile(r"^\s*(ROOT )?%?([\w.-]+) = (.*)$")
_OPERAND = re.compile(r"%([\w.-]+)")
_CALLEES = re.compile(r"(?:calls|body|to_apply|true_computation|false_computation)=%?([\w.-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')


@dataclass(frozen=True, slots=True)
class Shape:
    """An array's element type and dimensions."""

    dtype: str
    dims: tuple[int, ...]

    @property
    def elements(self) -> int:
        """How many it has."""
        return math.prod(self.dims)

    @property
    def bytes(self) -> float:
        """Its size, without padding."""
        return self.elements * self._bits / 8

    @property
    def _bits(self) -> int:
        if self.dtype in _BITS:
            return _BITS[self.dtype]
        digits = re.search(r"\d+", self.dtype)
        return int(digits.group()) if digits else 0


@dataclass(frozen=True, slots=True)
class Instruction:
    """One line of a computation."""

    name: str
    opcode: str
    shapes: tuple[Shape, ...]
    operands: tuple[str, ...]
    attributes: str
    arguments: str = ""
    is_root: bool = False

    @property
    def callees(self) -> tuple[str, ...]:
        """Computations that it runs. The second half of an asynchronous pair repeats the first's: it has none."""
        if self.opcode in {"async-done", "async-update"}:
            return ()
        branches = _BRANCHES.search(self.attributes)
        named = [name.strip().lstrip("%") for name in branches[1].split(",")] if branches else []
        return (*_CALLEES.findall(self.attributes), *named)

    @property
    def known_trips(self) -> int | None:
        """How often a loop runs its body, where the compiler says so."""
        known = _TRIPS.search(self.attributes)
        return int(known[1]) if known else None

    def attribute(self, pattern: str) -> str | None:
        """The first group of a regular expression in its attributes."""
        found = re.search(pattern, self.attributes)
        return found[1] if found else None


@dataclass(slots=True)
class Computation:
    """A list of instructions, in the order in which they run once the program is scheduled."""

    name: str
    instructions: list[Instruction] = field(default_factory=list)

    def shape_of(self, name: str) -> Shape | None:
        """The shape of an instruction's result, if it is one array."""
        return next((one.shapes[0] for one in self.instructions if one.name == name and one.shapes), None)


@dataclass(frozen=True)
class Module:
    """A compiled program."""

    computations: dict[str, Computation]
    entry: str

    @classmethod
    def parse(cls, text: str) -> Module:
        """Read HLO text, as of `jax.stages.Compiled.as_text`."""
        computations: dict[str, Computation] = {}
        entry, current = "", None
        for line in text.splitlines():
            if header := _HEADER.match(line):
                current = computations[header[2]] = Computation(header[2])
                entry = header[2] if header[1] else entry
            elif line.startswith("}"):
                current = None
            elif current is not None and (instruction := _read(line)):
                current.instructions.append(instruction)
        return cls(computations, entry)

    @functools.cached_property
    def runs(self) -> dict[str, float]:
        """How often each computation runs in a step, loops multiplied out; NaN inside a loop of unknown length."""
        counts = dict.fromkeys(self.computations, 0.0)
        counts[self.entry] = 1.0
        for name in self.callers_first():
            for instruction in self.computations[name].instructions:
                known = self.trips(self.computations[name], instruction)
                trips = math.nan if known is None else known
                for callee in instruction.callees:
                    if callee in counts:
                        counts[callee] += counts[name] * trips
        return counts

    @property
    def unknown_loops(self) -> tuple[str, ...]:
        """Loops of which the compiler does not know how often they run."""
        return tuple(
            one.name
            for computation, one in self.all_instructions()
            if one.opcode == "while" and self.trips(computation, one) is None
        )

    def trips(self, computation: Computation, instruction: Instruction) -> int | None:
        """How often an instruction runs what it calls: 1, or the rounds of a loop; None when nobody knows."""
        if instruction.opcode != "while":
            return 1
        if instruction.known_trips is not None:
            return instruction.known_trips
        return trip_count(self.computations, computation, instruction)

    def all_instructions(self) -> Iterator[tuple[Computation, Instruction]]:
        """Every instruction with its computation."""
        return (
            (computation, instruction)
            for computation in self.computations.values()
            for instruction in computation.instructions
        )

    def callers_first(self) -> list[str]:
        """The computations that run, in an order in which each comes before those that it calls."""
        done: dict[str, None] = {}

        def visit(name: str) -> None:
            if name in done or name not in self.computations:
                return
            for instruction in self.computations[name].instructions:
                for callee in instruction.callees:
                    visit(callee)
            done[name] = None

        visit(self.entry)
        return list(reversed(done))


def _read(line: str) -> Instruction | None:
    found = _INSTRUCTION.match(line)
    if not found:
        return None
    type_text, rest = _split_type(found[3])
    opcode, _, tail = rest.partition("(")
    arguments, attributes = _split_arguments(tail)
    shapes = tuple(
        Shape(dtype, tuple(int(size) for size in dims.split(",") if size))
        for dtype, dims in _SHAPE.findall(type_text)
    )
    return Instruction(
        found[2],
        opcode.strip(),
        shapes,
        tuple(_OPERAND.findall(arguments)),
        attributes,
        arguments.strip(),
        bool(found[1]),
    )


def _split_type(text: str) -> tuple[str, str]:
    """A result's type, which may be a tuple, and what follows it."""
    if not text.startswith("("):
        head, _, tail = text.partition(" ")
        return head, tail
    end = _closing(text, 1)
    return text[: end + 1], text[end + 1 :].strip()


def _split_arguments(text: str) -> tuple[str, str]:
    end = _closing(text, 0)
    return text[:end], text[end + 1 :]


def _closing(text: str, start: int) -> int:
    """Where the parenthesis closes that is open at `start`."""
    depth = 1
    for at in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth == 0:
            return at
    return len(text)
