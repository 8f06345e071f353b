"""How often a loop of a compiled program runs its body, where the compiler does not write it down.

XLA makes loops of its own, as when it overlaps a matrix product with the collective that feeds it, and leaves their
length to be read from the program: a counter in the loop's tuple that begins at a constant, is compared with a
constant and grows by one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from multislice_nb.sharding.hlo import Computation, Instruction

__all__ = ["trip_count"]

_SAME = {"copy", "copy-start", "copy-done", "bitcast", "convert", "reshape"}
_DEEPEST = 60  # instructions followed from one to the next


@dataclass(frozen=True, slots=True)
class _Value:
    """A number, or what an element of the loop's tuple is at the beginning of a round, plus a number."""

    number: int
    element: int | None = None


@dataclass(frozen=True)
class _Frame:
    """A computation with what its parameters stand for; the loop's own tuple where there are no arguments."""

    computation: Computation
    arguments: tuple[tuple[_Frame, str], ...] = ()
    names: Mapping[str, Instruction] = field(default_factory=dict)


def trip_count(computations: Mapping[str, Computation], caller: Computation, loop: Instruction) -> int | None:
    """Rounds of a while loop, or None where its counter cannot be read.

    Args:
        computations: Of the program, by name.
        caller: Where the loop stands.
        loop: The loop.
    """
    reader = _Reader(computations)
    condition, body = (
        reader.frame(loop.attribute(rf"\b{word}=%?([\w.-]+)")) for word in ("condition", "body")
    )
    if condition is None or body is None:
        return None
    compared = reader.comparison(condition)
    if compared is None:
        return None
    counter, end, direction = compared
    begin = reader.element(_Frame(caller, names=_by_name(caller)), loop.operands[0], counter)
    step = reader.element(body, _root(body.computation).name, counter)
    if begin is None or begin.element is not None or step is None or step.element != counter:
        return None
    last = end + (direction == "LE")
    if direction not in {"LT", "LE"} or step.number <= 0:
        return None
    return max(0, -(-(last - begin.number) // step.number))


class _Reader:
    def __init__(self, computations: Mapping[str, Computation]) -> None:
        self.computations = computations

    def frame(self, name: str | None, arguments: tuple[tuple[_Frame, str], ...] = ()) -> _Frame | None:
        found = self.computations.get(name or "")
        return None if found is None else _Frame(found, arguments, _by_name(found))

    def comparison(self, condition: _Frame) -> tuple[int, int, str] | None:
        """The element of the tuple that is compared, the number it is compared with, and how."""
        frame, root = condition, _root(condition.computation)
        if root.opcode == "fusion":
            inner = self.frame(
                root.attribute(r"calls=%?([\w.-]+)"), tuple((frame, name) for name in root.operands)
            )
            if inner is None:
                return None
            frame, root = inner, _root(inner.computation)
        if root.opcode != "compare":
            return None
        left, right = (self.value(frame, name) for name in root.operands)
        direction = root.attribute(r"direction=(\w+)") or ""
        if left is None or right is None or left.element is None or right.element is not None:
            return None
        return left.element, right.number - left.number, direction

    def element(  # noqa: PLR0911 - an answer for each kind of instruction
        self, frame: _Frame, name: str, index: int, depth: int = 0
    ) -> _Value | None:
        """An element of a tuple."""
        found = frame.names.get(name)
        if found is None or depth > _DEEPEST:
            return None
        if found.opcode == "tuple" and index < len(found.operands):
            return self.value(frame, found.operands[index], depth + 1)
        if found.opcode in _SAME:
            return self.element(frame, found.operands[0], index, depth + 1)
        if found.opcode == "fusion":
            inner = self._inside(frame, found)
            root = "" if inner is None else _root(inner.computation).name
            return None if inner is None else self.element(inner, root, index, depth + 1)
        if found.opcode == "parameter":
            if not frame.arguments:
                return _Value(0, index)
            outer, argument = frame.arguments[int(found.arguments)]
            return self.element(outer, argument, index, depth + 1)
        return None

    def value(  # noqa: PLR0911 - an answer for each kind of instruction
        self, frame: _Frame, name: str, depth: int = 0
    ) -> _Value | None:
        """What a scalar is."""
        found = frame.names.get(name)
        if found is None or depth > _DEEPEST:
            return None
        if found.opcode == "constant":
            return _Value(int(found.arguments)) if re.fullmatch(r"-?\d+", found.arguments) else None
        if found.opcode in _SAME:
            return self.value(frame, found.operands[0], depth + 1)
        if found.opcode == "get-tuple-element":
            index = found.attribute(r"index=(\d+)")
            return self.element(frame, found.operands[0], int(index or 0), depth + 1)
        if found.opcode == "parameter" and frame.arguments:
            outer, argument = frame.arguments[int(found.arguments)]
            return self.value(outer, argument, depth + 1)
        if found.opcode == "fusion":
            inner = self._inside(frame, found)
            root = "" if inner is None else _root(inner.computation).name
            return None if inner is None else self.value(inner, root, depth + 1)
        if found.opcode == "add":
            return _sum(*(self.value(frame, operand, depth + 1) for operand in found.operands))
        return None

    def _inside(self, frame: _Frame, fusion: Instruction) -> _Frame | None:
        return self.frame(
            fusion.attribute(r"calls=%?([\w.-]+)"), tuple((frame, name) for name in fusion.operands)
        )


def _sum(left: _Value | None, right: _Value | None) -> _Value | None:
    if left is None or right is None or (left.element is not None and right.element is not None):
        return None
    element = right.element if left.element is None else left.element
    return _Value(left.number + right.number, element)


def _by_name(computation: Computation) -> dict[str, Instruction]:
    return {one.name: one for one in computation.instructions}


def _root(computation: Computation) -> Instruction:
    return next((one for one in computation.instructions if one.is_root), computation.instructions[-1])
