"""Many workers' text, with nothing lost and nothing shown twice."""

from __future__ import annotations

import collections
import re
from typing import TYPE_CHECKING

from multislice_nb.cluster.inventory import ranks_text

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    position = dict.fromkeys(lines, 0)
    ahead = {rank: collections.Counter(own) for rank, own in lines.items()}
    blocks: list[tuple[tuple[int, ...], list[str]]] = []
    while position:
        heads: dict[str, list[int]] = {}
        for rank, index in position.items():
            heads.setdefault(lines[rank][index], []).append(rank)
        line, ranks = _next_line(heads, ahead, position)
        for rank in ranks:
            ahead[rank][line] -= 1
            position[rank] += 1
            if position[rank] == len(lines[rank]):
                del position[rank]
        if blocks and blocks[-1][0] == tuple(ranks):
            blocks[-1][1].append(line)
        else:
            blocks.append((tuple(ranks), [line]))
    return [(ranks_text(ranks, total=total), "\n".join(block)) for ranks, block in blocks]


def _next_line(
    heads: Mapping[str, list[int]],
    ahead: Mapping[int, collections.Counter[str]],
    position: Mapping[int, int],
) -> tuple[str, list[int]]:
    """The head that nobody else has still to come; failing that, the one that most workers stand at."""
    for line, ranks in heads.items():
        if not any(ahead[rank][line] > 0 for rank in position if rank not in ranks):
            return line, ranks
    return max(heads.items(), key=lambda head: len(head[1]))


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
        note = f"… {hidden:,} lines above\n" if hidden else ""
        return note + "".join(kept) + self._line
