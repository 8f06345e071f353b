"""This package as one file, so that the workers run the very code that the notebook runs.

The zip is made from the installed sources, is named by the hash of its content, and is imported from as it
stands. Nothing has to be published or installed for a notebook and its workers to agree.
"""

from __future__ import annotations

import functools
import hashlib
import io
import zipfile
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Payload", "payload"]

_LEFT_OUT = {"emulator", "magics", "widgets", "__pycache__"}
_EPOCH = (1980, 1, 1, 0, 0, 0)  # equal content must give equal bytes


@dataclass(frozen=True, slots=True, repr=False)
class Payload:
    """A zip of the package's sources and its file name, which carries the content's hash."""

    name: str
    content: bytes


@functools.cache
def payload() -> Payload:
    """The package that this process runs, without the rooms that only a notebook uses."""
    root = Path(__file__).resolve().parents[1]
    sources = sorted(path for path in root.rglob("*.py") if not _LEFT_OUT & set(path.relative_to(root).parts))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sources:
            name = f"{root.name}/{path.relative_to(root).as_posix()}"
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), path.read_bytes(), zipfile.ZIP_DEFLATED)
    content = buffer.getvalue()
    return Payload(f"multislice_nb-{hashlib.sha256(content).hexdigest()[:16]}.zip", content)
