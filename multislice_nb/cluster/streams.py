"""The engine's standard streams: what Python prints, and nothing else.

libtpu and gloo write to the file descriptors from C++. ipykernel would copy that into the cell's output; here
it stays where it belongs, in the engine's log.
"""

from __future__ import annotations

from typing import Any

from ipykernel.iostream import OutStream

__all__ = ["PythonStream"]


class PythonStream(OutStream):
    """An OutStream that leaves the file descriptors alone."""

    def __init__(self, session: Any, pub_thread: Any, name: str, **options: Any) -> None:
        options["watchfd"] = False
        super().__init__(session, pub_thread, name, **options)  # type: ignore[no-untyped-call]
