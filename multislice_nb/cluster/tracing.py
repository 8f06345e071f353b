"""A trace of jax.profiler around a cell. Runs in the engine."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["FOLDER", "settle", "start", "stop"]

FOLDER = "trace"
"""In the folder of a cell's record, so that it goes with that if nobody fetches it."""


def start(folder: Path) -> None:
    """Begin a trace.

    Raises:
        RuntimeError: One runs already in this process.
    """
    import jax

    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = (
        0  # each call of a Python function would be an event, and slow the cell down
    )
    try:
        jax.profiler.start_trace(str(folder), profiler_options=options)
    except RuntimeError as error:
        raise RuntimeError(
            f"the trace did not start ({error}); if one of your own runs, end it with jax.profiler.stop_trace()"
        ) from error


def settle() -> None:
    """Wait until all arrays are there: a cell may end while devices still work for it, and that belongs to its trace."""
    import jax

    jax.block_until_ready(jax.live_arrays())


def stop() -> None:
    """End the trace and write it. Where that fails, the cell's own end counts, and stderr says why."""
    import jax

    try:
        jax.profiler.stop_trace()
    except Exception as error:  # noqa: BLE001 - whatever it is, the cell ran
        print(f"The trace was not written: {error}", file=sys.stderr, flush=True)
