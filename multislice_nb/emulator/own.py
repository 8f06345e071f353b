"""An emulator home of one's own: what runs in it neither meets nor disturbs anything else on this machine."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from multislice_nb.emulator import daemon

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["own_home"]


@contextlib.contextmanager
def own_home(home: Path | None = None, **variables: str) -> Iterator[Path]:
    """Give this process, and those that it starts, an emulator home; its emulator is stopped at the end.

    Args:
        home: The folder; a temporary one if None.
        **variables: What else stands in the environment as long.

    Raises:
        EmulatorError: Its emulator did not end.
    """
    with contextlib.ExitStack() as stack:
        if home is None:
            # What an ending process still writes there must not hide how the block ended.
            folder = tempfile.TemporaryDirectory(prefix="multislice-", ignore_cleanup_errors=True)
            home = Path(stack.enter_context(folder))
        stack.enter_context(
            _environment({"MULTISLICE_NB_EMULATOR": "1", "MULTISLICE_NB_HOME": str(home), **variables})
        )
        stack.callback(daemon.stop)
        yield home


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
