"""What the extension and the panel cost a kernel, beside a kernel without them.

    python tests/benchmarks/bench_panel.py [pairs]

Three questions: how much `%load_ext multislice_nb` adds to the start of a fresh kernel; how much longer than an
idle kernel a kernel takes to answer while the panel opens, each of its tabs is opened, and a grid of 1024
workers is drawn; and how long that grid takes to draw and to draw again. A front end is played that does what
JupyterLab does: it shows the panel, opens tabs, and asks the kernel for a sign of life all the while.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import psutil
from jupyter_client.manager import KernelManager

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


if TYPE_CHECKING:
    from collections.abc import Iterable


class Cost(NamedTuple):
    """Seconds by the clock, and of the kernel's processor time, which a busy machine does not change."""

    clock: float
    processor: float

    def __str__(self) -> str:
        return f"{self.clock * 1e3:.0f} ms ({self.processor * 1e3:.0f} ms of processor time)"


class Kernel:
    """A kernel and a front end before it."""

    def __init__(self) -> None:
        self._manager = KernelManager()
        self._start = time.perf_counter()
        self._manager.start_kernel()
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

    def run(self, code: str) -> Cost:
        """Run a cell; what it cost until its reply came."""
        start, used = time.perf_counter(), self._used()
        sent = self.client.execute(code, allow_stdin=True)
        self._reply(sent)
        cost = Cost(time.perf_counter() - start, self._used() - used)
        while not self._listen(sent):
            time.sleep(0.01)
        return cost

    def since_start(self, code: str) -> Cost:
        """From the start of the process to the reply to a first cell."""
        self.run(code)
        return Cost(time.perf_counter() - self._start, self._used())

    def _pid(self) -> int:
        pid: int = getattr(self._manager.provisioner, "pid")  # noqa: B009 - of the local provisioner alone
        return pid

    def _used(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def _reply(self, sent: str) -> None:
        while True:
            message = self.client.get_shell_msg(timeout=120)
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

    def change(self, model: str, **state: Any) -> None:
        """Change a widget as a front end does, without waiting."""
        message = self.client.session.msg(
            "comm_msg",
            {"comm_id": self.models[model], "data": {"method": "update", "state": state, "buffer_paths": []}},
        )
        self.client.shell_channel.send(message)

    def silence(self, seconds: float, model: str = "", **state: Any) -> float:
        """Change a widget, ask for signs of life for a while, and tell the longest that one took."""
        if model:
            self.change(model, **state)
        limit, longest = time.perf_counter() + seconds, 0.0
        while time.perf_counter() < limit:
            start = time.perf_counter()
            self._reply(self.client.kernel_info())
            longest = max(longest, time.perf_counter() - start)
            self._listen()
            time.sleep(0.005)
        return longest


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


def panel() -> None:
    """Open the panel in a fresh kernel, then its tabs."""
    with Kernel() as kernel:
        kernel.run("%load_ext multislice_nb\n%multislice connect")
        kernel.run("%multislice create big --accelerator-type v4-32 --node-count 256 --wait")
        kernel.run("pass")
        idle = median(kernel.run("pass") for _ in range(20))
        quiet = kernel.silence(3.0)
        print(f"| opening the panel | {kernel.run('%multislice panel')} | {idle} | |")
        print(f"| opening a second one | {kernel.run('%multislice panel')} | {idle} | |")
        shown = kernel.silence(4.0, "board", _view_count=1)
        print(
            f"| longest silence while it is shown, 1024 workers | {shown * 1e3:.0f} ms | {quiet * 1e3:.0f} ms | |"
        )
        for number, tab in enumerate(("Workers", "Run", "Plan", "Sweep", "Jobs"), start=1):
            longest = kernel.silence(4.0, "TabModel", selected_index=number)
            print(f"| longest silence while {tab} opens | {longest * 1e3:.0f} ms | {quiet * 1e3:.0f} ms | |")
        kernel.run("%multislice delete big")
        kernel.run(GRID)
        first, again = (float(word) * 1e3 for word in kernel.printed.split())
        print(f"| a grid of 1024 workers: first, again | {first:.1f} ms | {again:.1f} ms | |")


def main(pairs: int = 10) -> None:
    """Measure all of it on an emulator of its own."""
    from multislice_nb.emulator import daemon

    with tempfile.TemporaryDirectory() as home:
        os.environ |= {"MULTISLICE_NB_HOME": home, "IPYTHONDIR": f"{home}/ipython"}
        print("| what | here | beside it | ratio |\n|---|---|---|---|")
        load_ext(pairs)
        try:
            daemon.ensure_running(owner_pid=os.getpid())
            panel()
        finally:
            daemon.stop()


if __name__ == "__main__":
    main(*(int(text) for text in sys.argv[1:]))
