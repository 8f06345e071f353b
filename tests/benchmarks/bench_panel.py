"""What the extension and the panel cost a kernel, beside a kernel without them.

    python tests/benchmarks/bench_panel.py [pairs] [rounds]

Three questions: how much `%load_ext multislice_nb` adds to the start of a fresh kernel; for how long a kernel does
not answer while the panel opens, while each of its tabs opens, and while it shows 1024 workers, beside an idle
kernel's own round trip; and how long a grid of so many takes to draw and to draw again. A front end is played that
does what JupyterLab does: it shows the panel, opens tabs, and asks the kernel for a sign of life all the while.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import psutil
from jupyter_client.manager import KernelManager

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

DEADLINE = 60.0
"""Seconds for anything that a kernel is asked for: far beyond what it takes."""
WATCHED = 2.0
"""Seconds for which the kernel is asked for signs of life after something was opened."""
TABS = ("Workers", "Run", "Plan", "Sweep", "Jobs")
GRID = """
import time
from multislice_nb.widgets.grid import Grid
from multislice_nb.widgets.snapshot import ClusterLook, WorkerLook
def look(*lost):
    return ClusterLook("big", "", tuple(
        WorkerLook(r, r // 4, r % 4, f"big-{r // 4}", "10.0.0.1", "lost" if r in lost else "ready") for r in range(1024)))
grid, times = Grid(lambda _: None), []
for number, cluster in enumerate((look(), look(7), look(8, 9), look(10))):
    start = time.perf_counter()
    grid.draw(cluster, {rank: (rank + number) % 9 for rank in range(1024)}, 0)
    times.append(time.perf_counter() - start)
print(times[0], sorted(times[1:])[1])
"""


class Cost(NamedTuple):
    """Seconds by the clock, and of processor time, which other work on the machine changes less."""

    clock: float
    processor: float

    def __str__(self) -> str:
        return f"{self.clock * 1e3:.0f} ms ({self.processor * 1e3:.0f} ms of processor time)"


class Kernel:
    """A kernel and a front end before it."""

    def __init__(self) -> None:
        self._manager = KernelManager()
        self._start = time.perf_counter()
        self._manager.start_kernel(extra_arguments=["--log-level=ERROR"])
        self._process = psutil.Process(self._pid())
        self.client = self._manager.client()
        self.client.start_channels()
        self.models: dict[str, str] = {}
        self.printed = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.stop_channels()
        self._manager.shutdown_kernel(now=True)

    def since_start(self, code: str) -> Cost:
        """From the start of the process to the reply to a first cell.

        What is published meanwhile is not waited for: a kernel publishes it to those who listen by then.
        """
        self._reply(self.client.execute(code), code)
        return Cost(time.perf_counter() - self._start, self._used())

    def ready(self) -> Self:
        """Once what it publishes is heard here."""
        self.client.wait_for_ready(timeout=DEADLINE)
        return self

    def run(self, code: str) -> Cost:
        """Run a cell; what it cost until its reply came."""
        start, used = time.perf_counter(), self._used()
        sent = self.client.execute(code, allow_stdin=True)
        self._reply(sent, code)
        cost = Cost(time.perf_counter() - start, self._used() - used)
        limit = time.perf_counter() + DEADLINE
        while not self._listen(sent):
            if time.perf_counter() > limit:
                raise TimeoutError(f"the kernel never told that it is idle after {code!r}")
            time.sleep(0.01)
        return cost

    def silence(self, start: Callable[[], object] = lambda: None) -> Cost:
        """Have something opened, ask for signs of life for a while, and tell the longest that one took.

        The processor time is what the thread that answers used of it in all that while.
        """
        begun, used = time.perf_counter(), self._used_by_loop()
        start()
        longest, limit = time.perf_counter() - begun, time.perf_counter() + WATCHED
        while time.perf_counter() < limit:
            begun = time.perf_counter()
            self._reply(self.client.kernel_info(), "a sign of life")
            longest = max(longest, time.perf_counter() - begun)
            self._listen()
            time.sleep(0.005)
        return Cost(longest, self._used_by_loop() - used)

    def change(self, model: str, **state: Any) -> None:
        """Change a widget as a front end does, without waiting."""
        if model not in self.models:
            raise RuntimeError(f"the kernel opened no {model}, but {', '.join(self.models)}")
        message = self.client.session.msg(
            "comm_msg",
            {"comm_id": self.models[model], "data": {"method": "update", "state": state, "buffer_paths": []}},
        )
        self.client.shell_channel.send(message)

    def _pid(self) -> int:
        pid: int = getattr(self._manager.provisioner, "pid")  # noqa: B009 - of the local provisioner alone
        return pid

    def _used(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def _used_by_loop(self) -> float:
        """By the first thread, which runs cells and answers front ends."""
        first = next(thread for thread in self._process.threads() if thread.id == self._process.pid)
        return float(first.user_time + first.system_time)

    def _reply(self, sent: str, what: str) -> None:
        limit = time.perf_counter() + DEADLINE
        while True:
            try:
                message = self.client.get_shell_msg(timeout=max(0.0, limit - time.perf_counter()))
            except queue.Empty:
                raise TimeoutError(f"the kernel did not reply to {what!r} within {DEADLINE:.0f} s") from None
            if message["parent_header"].get("msg_id") == sent:
                if message["content"].get("status") == "error":
                    raise RuntimeError("\n".join(message["content"]["traceback"]))
                return

    def _listen(self, sent: str = "") -> bool:
        """Take what the kernel published: the models that it opened, and what it printed; whether a cell is through."""
        through = False
        while self.client.iopub_channel.msg_ready():
            message = self.client.get_iopub_msg(timeout=1)
            content = message["content"]
            if message["msg_type"] in {"comm_open", "comm_msg"}:
                state = content["data"].get("state", {})
                if "_model_name" in state:
                    self.models[state["_model_name"]] = content["comm_id"]
                if "msnb-board" in state.get("_dom_classes", ()):
                    self.models["board"] = content["comm_id"]
            elif message["msg_type"] == "stream":
                self.printed = content["text"]
            elif message["msg_type"] == "status" and message["parent_header"].get("msg_id") == sent:
                through = through or content["execution_state"] == "idle"
        return through


def load_ext(pairs: int) -> None:
    """Fresh kernels with and without the extension, in turns."""

    def once(code: str) -> Cost:
        with Kernel() as kernel:
            return kernel.since_start(code)

    for code in ("pass", "%load_ext multislice_nb"):
        once(code)  # reads files that the next start finds in memory
    times = [(once("%load_ext multislice_nb"), once("pass")) for _ in range(pairs)]
    here, beside = (median(column) for column in zip(*times, strict=True))
    ratio = statistics.median(a.processor / b.processor for a, b in times)
    clock = statistics.median(a.clock / b.clock for a, b in times)
    print(f"| start of a kernel with %load_ext | {here} | {beside} | {clock:.3f} ({ratio:.3f}) |")


def median(costs: Iterable[Cost]) -> Cost:
    """The middle of both."""
    clocks, processors = zip(*costs, strict=True)
    return Cost(statistics.median(clocks), statistics.median(processors))


def panel(rounds: int) -> None:
    """Open the panel and its tabs in fresh kernels, and draw a grid."""
    sweep(Path("sweep.jsonl"))
    with Kernel().ready() as kernel:
        kernel.run("%load_ext multislice_nb\n%multislice connect")
        kernel.run("%multislice create big --accelerator-type v4-32 --node-count 256 --wait")
        kernel.run(GRID)
        first, again = (float(word) * 1e3 for word in kernel.printed.split())
    opened()  # as above
    found = [opened() for _ in range(rounds)]
    for what in found[0]:
        here, beside = (median(costs) for costs in zip(*(one[what] for one in found), strict=True))
        print(f"| {what} | {here} | {beside} | {(here.clock - beside.clock) * 1e3:+.0f} ms |")
    print(f"| a grid of 1024 workers: first, again | {first:.1f} ms | {again:.1f} ms | |")


def sweep(file: Path) -> None:
    """Results for the sweep's tab to draw, which brings pandas and matplotlib with it."""
    rows = (
        {
            "key": f"{name}{batch}",
            "status": "ok",
            "strategy": name,
            "batch_per_device": batch,
            "embedding": 256,
        }
        | {"tflops_per_chip": batch * 1e-4, "step_seconds": 0.1, "spread": 0.02, "layers": 4}
        for name in ("fsdp", "tensor", "fsdp+tensor")
        for batch in range(8, 1024, 8)
    )
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def at_once() -> tuple[Cost, Cost]:
    """What a fresh kernel takes for the extension and the panel in one cell, when nothing was read ahead."""
    with Kernel().ready() as kernel:
        idle = median(kernel.run("pass") for _ in range(20))
        return kernel.run("%load_ext multislice_nb\n%multislice panel"), idle


def opened() -> dict[str, tuple[Cost, Cost]]:
    """What the panel costs a fresh kernel, and its answer to a cell or a sign of life while it has nothing to do."""
    with Kernel().ready() as kernel:
        kernel.run("%load_ext multislice_nb\n%multislice connect")
        kernel.silence()
        idle, quiet = median(kernel.run("pass") for _ in range(20)), kernel.silence()
        found = {"opening the panel, until the cell is done": (kernel.run("%multislice panel"), idle)}

        def watched(what: str, start: Callable[[], object]) -> None:
            found[f"longest silence while {what}"] = (kernel.silence(start), quiet)

        watched("it is shown for the first time", lambda: kernel.change("board", _view_count=1))
        watched("it is shown", lambda: None)
        for number, tab in enumerate(TABS, start=1):
            watched(f"{tab} opens", lambda at=number: kernel.change("TabModel", selected_index=at))  # type: ignore[misc]
        found["opening a second one"] = (kernel.run("%multislice panel"), idle)
    found["loading the extension and opening the panel in one cell"] = at_once()
    return found


def main(pairs: int = 10, rounds: int = 3) -> None:
    """Measure all of it on an emulator of its own."""
    from multislice_nb.emulator import daemon

    with tempfile.TemporaryDirectory() as home, contextlib.chdir(home):
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package comes with its bytecode
        os.environ |= {"MULTISLICE_NB_HOME": home, "IPYTHONDIR": f"{home}/ipython"}
        print("| what | here | beside it | ratio or more |\n|---|---|---|---|")
        load_ext(pairs)
        try:
            daemon.ensure_running(owner_pid=os.getpid())
            panel(rounds)
        finally:
            daemon.stop()


if __name__ == "__main__":
    main(*(int(text) for text in sys.argv[1:]))
