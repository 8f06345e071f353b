"""A trivial cell on the same engines: `%%multislice` beside ipyparallel's own `%%px`.

    python tests/benchmarks/bench_cell.py [accelerator type] [slices] [pairs]

The two take turns, so that a drift of the machine's speed falls on both; what counts is the ratio.
"""

from __future__ import annotations

import contextlib
import io
import os
import statistics
import sys
import tempfile
import time
from typing import TYPE_CHECKING

from IPython.core.interactiveshell import InteractiveShell

if TYPE_CHECKING:
    from collections.abc import Callable


def timed(function: Callable[[], object]) -> float:
    """Seconds that a call takes, its output thrown away."""
    with contextlib.redirect_stdout(io.StringIO()):
        start = time.perf_counter()
        function()
        return time.perf_counter() - start


def main(accelerator_type: str = "v4-16", slices: int = 2, pairs: int = 200) -> None:
    """Attach, take turns, and print medians and their ratio."""
    from multislice_nb.emulator import daemon

    with tempfile.TemporaryDirectory() as home:
        os.environ["MULTISLICE_NB_HOME"] = home
        shell = InteractiveShell.instance()
        try:
            shell.run_line_magic("load_ext", "multislice_nb")
            with contextlib.redirect_stdout(io.StringIO()):
                shell.run_line_magic(
                    "multislice",
                    f"create bench --accelerator-type {accelerator_type} --node-count {slices} --wait",
                )
                shell.run_line_magic("multislice", "attach bench")
            import multislice_nb as ms

            cluster = ms.cluster.attached("bench")
            cluster.client.activate("all")

            def ours() -> object:
                return shell.run_cell_magic("multislice", "", "1 + 1")

            def theirs() -> object:
                return shell.run_cell_magic("px", "", "1 + 1")

            for function in (ours, theirs) * 5:
                timed(function)
            times = [(timed(ours), timed(theirs)) for _ in range(pairs)]
            mine, other = (statistics.median(column) for column in zip(*times, strict=True))
            ratio = statistics.median(a / b for a, b in times)
            print("| workers | %%multislice | %%px | ratio |\n|---|---|---|---|")
            print(f"| {len(cluster.workers)} | {mine * 1e3:.1f} ms | {other * 1e3:.1f} ms | {ratio:.2f} |")
            with contextlib.redirect_stdout(io.StringIO()):
                cluster.shutdown()
        finally:
            daemon.stop()


if __name__ == "__main__":
    main(*(convert(text) for convert, text in zip((str, int, int), sys.argv[1:], strict=False)))
