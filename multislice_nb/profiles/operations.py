"""What an operation of a trace is: computing or a collective, and how long a set of them takes together."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Interval", "computes", "kind_of", "merged", "total"]

Interval: TypeAlias = "tuple[float, float]"
"""Begin and end, in one unit of time."""

SEND = "send/recv"
"""Point to point; over DCN each collective of XLA's TPU compiler is made of them."""

# In this order: what sums and scatters is called all-reduce-scatter where XLA fuses the two.
_KINDS = (
    ("reduce-scatter", re.compile(r"reduce-?scatter")),
    ("all-reduce", re.compile(r"all-?reduce")),
    ("all-gather", re.compile(r"all-?gather")),
    ("collective-permute", re.compile(r"collective-?permute")),
    ("all-to-all", re.compile(r"all-?to-?all")),
    ("collective-broadcast", re.compile(r"collective-?broadcast")),
    (SEND, re.compile(r"^(send|recv)\b")),
)
_CALLS = re.compile(r"\bcalls=%([\w.-]+)")  # of a fusion: XLA's TPU compiler puts a reduce-scatter into one
_CONTAINER = re.compile(r"(while|conditional|call)([.\d]|$)")
_BEGIN_OR_WAIT = re.compile(r"-(start|done)([.\d]|$)")


@functools.lru_cache(maxsize=4096)  # each step runs the same operations
def kind_of(operation: str) -> str | None:
    """The kind of collective that an HLO operation is, as in `all-reduce`; None for one that computes.

    Args:
        operation: Its name, as in `all-gather-start.3`, or all of its HLO text.
    """
    for text in (_name(operation), *_CALLS.findall(operation)):
        for kind, pattern in _KINDS:
            if pattern.search(text):
                return kind
    return None


def computes(operation: str) -> bool:
    """Whether a device is at work in an operation itself.

    It is not in what only holds others, which are in the trace too, as a loop does its body; nor where a copy to
    the host or between memories is begun or waited for.
    """
    name = _name(operation)
    return not (kind_of(operation) or _CONTAINER.match(name) or _BEGIN_OR_WAIT.search(name))


def _name(operation: str) -> str:
    """Without operands: a product of a gathered matrix is no all-gather."""
    return operation.partition(" = ")[0].removeprefix("%").lower()


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """The same time covered by intervals that do not overlap, in order."""
    joined: list[Interval] = []
    for begin, end in sorted(intervals):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined


def total(intervals: Iterable[Interval]) -> float:
    """Time that at least one of the intervals covers."""
    return sum(end - begin for begin, end in merged(intervals))
