"""The engine's standard streams: what Python prints, and nothing else.

libtpu and gloo write to the file descriptors from C++. ipykernel would copy that into the cell's output; here
it stays where it belongs, in the engine's log. What Python prints goes to the cell's record as well, for a
notebook that was away. What a thread prints after its cell has ended comes with the next cell.
"""

from __future__ import annotations

import collections
from typing import Any, ClassVar

from ipykernel.iostream import OutStream

from multislice_nb.cluster import record

__all__ = ["PythonStream"]

LATE = 10_000
"""Pieces of text that are kept between two cells, the last ones."""


class PythonStream(OutStream):
    """An OutStream that leaves the file descriptors alone."""

    _all: ClassVar[list[PythonStream]] = []
    _late: collections.deque[str] | None = None  # once a cell has run

    def __init__(self, session: Any, pub_thread: Any, name: str, **options: Any) -> None:
        options["watchfd"] = False
        super().__init__(session, pub_thread, name, **options)  # type: ignore[no-untyped-call]
        self._all.append(self)

    @classmethod
    def catch_up(cls) -> None:
        """Print what came since the last cell: this one has begun."""
        for stream in cls._all:
            late, stream._late = stream._late, collections.deque(maxlen=LATE)  # noqa: SLF001 - our own
            if late:
                stream.write("".join(late))

    def write(self, string: str) -> int:
        """Print to the notebook, and to the cell's record on this worker's disk."""
        if isinstance(string, str):
            string = _sendable(string)
            kept = record.write({"type": "stream", "name": self.name, "text": string})
            if not kept and self._late is not None:
                self._late.append(string)
                return len(string)
        return super().write(string) or 0


def _sendable(text: str) -> str:
    """Text that can travel: a lone surrogate, as of a file's name in another encoding, becomes its escape."""
    if text.isascii():
        return text
    return text.encode(errors="backslashreplace").decode()
