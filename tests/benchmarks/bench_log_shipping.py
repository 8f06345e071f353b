"""A job's command that prints 100 000 lines a second: alone, and with its log shipped as a supervisor does it.

    python tests/benchmarks/bench_log_shipping.py [lines] [pairs]

The two take turns, so that a drift of the machine's speed falls on both; what counts is the ratio. Every line must
be in the store in the end.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from multislice_nb.jobs import JobSpec, Store, layout
from multislice_nb.jobs.command import Command
from multislice_nb.jobs.logs import read_logs
from multislice_nb.jobs.record import Limits
from multislice_nb.jobs.shipping import Shipper

SPEC = JobSpec(name="bench", command="x", accelerator_type="v4-8")
# Some work between the lines, so that it is about 100 000 of them a second.
TALK = """
import sys
total = 0
for n in range({lines}):
    for part in range(40):
        total += part * n
    sys.stdout.write(f"step {{n:012d}} loss {{total % 997:012d}} tokens\\n")
"""


def talk(lines: int, folder: Path, store: Store | None) -> float:
    """Run the command; seconds that it took."""
    output = folder / "out.log"
    started = time.perf_counter()
    command = Command(f"exec {sys.executable} -c '{TALK.format(lines=lines)}'", folder, os.environ, output)
    shipper = Shipper(output, store, layout.log_folder(0, 1), Limits().heartbeat) if store else None
    ended = command.wait(600.0)
    seconds = time.perf_counter() - started
    if ended is None or not ended.ok:
        raise SystemExit("the command did not end well")
    if shipper and not shipper.close(120.0):
        raise SystemExit(f"the log did not arrive: {shipper.trouble}")
    return seconds


def lost(lines: int, store: Store) -> int:
    """How many lines are not in the store, in order."""
    there = (line.text for line in read_logs(store, SPEC))
    found = sum(text.startswith(f"step {n:012d} ") for n, text in enumerate(there))
    return lines - found


def main(lines: int = 500_000, pairs: int = 7) -> None:
    """Take turns, and print medians and their ratio."""
    times, missing = [], 0
    for turn in range(pairs):
        both = {}
        for shipped in (True, False) if turn % 2 else (False, True):
            with tempfile.TemporaryDirectory() as folder:
                store = Store(f"{folder}/store") if shipped else None
                both[shipped] = talk(lines, Path(folder), store)
                missing += lost(lines, store) if store else 0
        times.append((both[True], both[False]))
    with_it, without = (statistics.median(column) for column in zip(*times, strict=True))
    ratio = statistics.median(a / b for a, b in times)
    print("| lines a second | shipped | alone | ratio | lines lost |\n|---|---|---|---|---|")
    print(f"| {lines / without:.0f} | {with_it:.2f} s | {without:.2f} s | {ratio:.3f} | {missing} |")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
