"""The engine's standard streams: what Python prints, and nothing else.

libtpu and gloo write to the file descriptors from C++. ipykernel would copy that into the cell's output; here
it stays where it belongs, in the engine's log. What Python prints goes to the cell's record as well, for a
notebook that was away.
"""

from __future__ import annotations

from typing import Any

from ipykernel.iostream import OutStream

from multislice_nb.cluster import record

__all__ = ["PythonStream"]


class PythonStream(OutStream):
    """An OutStream that leaves the file descriptors alone."""

    def __init__(self, session: Any, pub_thread: Any, name: str, **options: Any) -> None:
        options["watchfd"] = False
        super().__init__(session, pub_thread, name, **options)  # type: ignore[no-untyped-call]

    def write(self, string: str) -> int:
        """Print to the notebook, and to the cell's record on this worker's disk."""
        if isinstance(string, str):
            record.write({"type": "stream", "name": self.name, "text": string})
        return super().write(string) or 0
