"""The engine's standard streams: what Python prints, and nothing else.

libtpu and gloo write to the file descriptors from C++. ipykernel would copy that into the cell's output; here
it stays where it belongs, in the engine's log. What Python prints goes to the cell's record as well, for a
notebook that was away. What a thread prints after its cell has ended comes with the next cell.
"""

from __future__ import annotations

import collections
import sys
from typing import Any, ClassVar

from ipykernel.iostream import OutStream

from multislice_nb.cluster import record

__all__ = ["PythonStream", "flush"]

LATE = 10_000
"""Pieces of text that are kept between two cells, the last ones."""


class PythonStream(OutStream):
    """An OutStream that leaves the file descriptors alone."""

    every: ClassVar[list[PythonStream]] = []
    _late: collections.deque[str] | None = None  # once a cell has run

    def __init__(self, session: Any, pub_thread: Any, name: str, **options: Any) -> None:
        options["watchfd"] = False
        super().__init__(session, pub_thread, name, **options)  # type: ignore[no-untyped-call]
        self.every.append(self)

    @classmethod
    def catch_up(cls) -> None:
        """Print what came since the last cell: this one has begun."""
        for stream in cls.every:
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

    def close(self) -> None:
        """Nothing that a cell does to it ends it: the next cell prints too."""
        self.flush()  # type: ignore[no-untyped-call]


def flush() -> None:
    """Send what was printed. A stream that cannot be flushed, as one that a cell closed, gives way to the engine's own."""
    own = {stream.name: stream for stream in PythonStream.every}
    for name in ("stdout", "stderr"):
        try:
            getattr(sys, name).flush()
        except Exception:  # noqa: BLE001 - a user's object may fail in any way, or be None
            setattr(sys, name, own.get(name, getattr(sys, f"__{name}__")))


def _sendable(text: str) -> str:
    """Text that can travel: a lone surrogate, as of a file's name in another encoding, becomes its escape."""
    if text.isascii():
        return text
    return text.encode(errors="backslashreplace").decode()
