"""Many workers' text, with nothing lost and nothing shown twice."""

from __future__ import annotations

import collections
import heapq
import re
from typing import TYPE_CHECKING

from multislice_nb._texts import grouped
from multislice_nb.cluster.inventory import ranks_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Terminal", "fold", "interleave"]

KEPT_APART = 1000
"""Last lines of a stream that are kept one by one, for what shows its end."""


def interleave(texts: Mapping[int, str], *, total: int) -> list[tuple[str, str]]:
    """Merge the lines of many workers, those that several printed shown once.

    Each worker's lines keep their order and none is lost. A line waits for the workers that have it still to
    come, so what all print falls together even where single workers print more in between.

    Returns:
        Pairs of who, as in `all 16` or `ranks 0-3, 7`, and the block of consecutive lines that they share.
    """
    lines = {rank: texts[rank].splitlines() for rank in sorted(texts) if texts[rank]}
    waiting = _Waiting(lines)
    blocks: list[tuple[tuple[int, ...], list[str]]] = []
    while waiting:
        ranks, line = waiting.take()
        if blocks and blocks[-1][0] == ranks:
            blocks[-1][1].append(line)
        else:
            blocks.append((ranks, [line]))
    return [(ranks_text(ranks, total=total), "\n".join(block)) for ranks, block in blocks]


class _Waiting:
    """The line that each worker stands at. A step costs no more than the workers that it moves on."""

    def __init__(self, lines: Mapping[int, list[str]]) -> None:
        self._lines = lines
        self._position = dict.fromkeys(lines, 0)
        self._ahead = {rank: collections.Counter(own) for rank, own in lines.items()}
        self._owners = collections.Counter(line for ahead in self._ahead.values() for line in ahead)
        self._heads: dict[str, list[int]] = {}
        self._ready: list[tuple[int, str]] = []  # by first rank: lines at which all stand that have them
        self._arrive(lines)

    def __bool__(self) -> bool:
        return bool(self._heads)

    def _arrive(self, ranks: Iterable[int]) -> None:
        for rank in ranks:
            if self._position[rank] < len(self._lines[rank]):
                line = self._lines[rank][self._position[rank]]
                self._heads.setdefault(line, []).append(rank)
                if len(self._heads[line]) == self._owners[line]:
                    heapq.heappush(self._ready, (min(self._heads[line]), line))

    def take(self) -> tuple[tuple[int, ...], str]:
        """A line that nobody else has still to come; failing that, the one that most workers stand at."""
        if self._ready:
            _, line = heapq.heappop(self._ready)
        else:
            line = max(self._heads, key=lambda head: (len(self._heads[head]), -min(self._heads[head])))
        ranks = tuple(sorted(self._heads.pop(line)))
        for rank in ranks:
            self._ahead[rank][line] -= 1
            self._owners[line] -= not self._ahead[rank][line]
            self._position[rank] += 1
        self._arrive(ranks)
        return ranks, line


def fold(texts: Mapping[int, str], *, total: int) -> list[tuple[str, str]]:
    """Group ranks that have the very same text, in the order of their first rank.

    Returns:
        Pairs of who, as in `all 4`, `ranks 0-1` or `rank 2`, and the text.
    """
    groups: dict[str, list[int]] = {}
    for rank in sorted(texts):
        groups.setdefault(texts[rank], []).append(rank)
    return [(ranks_text(ranks, total=total), text) for text, ranks in groups.items()]


class Terminal:
    """Text as a terminal would leave it: a carriage return starts its line again, as progress bars do.

    Finished lines are kept apart from the running one, so adding costs the length of what is added; all but the
    last few are joined, so a long text costs little more than its length.
    """

    _control = re.compile(r"[\r\n\b]")

    def __init__(self) -> None:
        self._joined: list[str] = []
        self._joined_lines = 0
        self._lines: list[str] = []
        self._line = ""
        self._column = 0

    def write(self, text: str) -> None:
        """Take one more piece of a stream."""
        position = 0
        for match in self._control.finditer(text):
            self._put(text[position : match.start()])
            position = match.end()
            if match.group() == "\n":
                self._lines.append(self._line + "\n")
                self._line, self._column = "", 0
            elif match.group() == "\r":
                self._column = 0
            else:
                self._column = max(0, self._column - 1)
        self._put(text[position:])
        if len(self._lines) > 2 * KEPT_APART:
            old, self._lines = self._lines[:-KEPT_APART], self._lines[-KEPT_APART:]
            self._joined.append("".join(old))
            self._joined_lines += len(old)

    def _put(self, text: str) -> None:
        if text:
            self._line = self._line[: self._column] + text + self._line[self._column + len(text) :]
            self._column += len(text)

    @property
    def text(self) -> str:
        """Everything so far."""
        return "".join([*self._joined, *self._lines, self._line])

    def tail(self, lines: int) -> str:
        """The last lines, up to 1000, for a screen that must stay small."""
        kept = self._lines[-min(lines, KEPT_APART) :]
        hidden = self._joined_lines + len(self._lines) - len(kept)
        note = f"… {grouped(hidden)} lines above\n" if hidden else ""
        return note + "".join(kept) + self._line
