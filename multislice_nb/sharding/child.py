"""Starts the planner's compiling processes, and ends them whatever happens."""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from multislice_nb.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from multislice_nb.sharding.compiling import CompileRequest

__all__ = ["cache_folder", "compile_in_child", "has_libtpu", "together"]

# Measured: 0.6 to 1.2 GB while a program for a TPU compiles.
_BYTES_PER_COMPILE = 1.5e9

_FOLDER = "multislice_nb-plan-"
"""What the temporary folder of a compilation begins with; the id of the process that made it follows."""

_STALE = 3600.0
"""Seconds after which a folder without its process is removed: one in a container of its own is not seen."""


def has_libtpu() -> bool:
    """Whether the TPU compiler is installed."""
    return importlib.util.find_spec("libtpu") is not None


def cache_folder() -> Path:
    """Where compiled plans are kept: `$MULTISLICE_NB_HOME/plans`, or the user's cache folder."""
    import platformdirs

    home = os.environ.get("MULTISLICE_NB_HOME")
    root = Path(home) if home else Path(platformdirs.user_cache_dir("multislice_nb"))
    return root / "plans"


@contextmanager
def together(jobs: int) -> Iterator[ThreadPoolExecutor]:
    """A pool for compilations that end together: after an interrupt or a failure none goes on or begins.

    As many run at the same time as there are cores, within the memory that is free.
    """
    room = int(psutil.virtual_memory().available / _BYTES_PER_COMPILE)
    group = _Group()
    pool = ThreadPoolExecutor(max(1, min(jobs, os.cpu_count() or 1, room)), initializer=group.join)
    try:
        yield pool
    except BaseException:
        group.end()
        raise
    finally:
        # Not waited for: a thread that is still tracing would hold back Ctrl-C. What it starts then ends at once.
        pool.shutdown(wait=False, cancel_futures=True)


class _Group:
    """The compiling processes that the threads of one pool have started."""

    _of_thread = threading.local()

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._ended = False

    @classmethod
    def here(cls) -> _Group:
        """That of this thread; one of its own in a thread of no pool."""
        found: _Group = getattr(cls._of_thread, "group", None) or cls()
        return found

    def join(self) -> None:
        """Let this thread's processes belong to it."""
        self._of_thread.group = self

    @contextmanager
    def holding(self, process: subprocess.Popen[bytes]) -> Iterator[None]:
        """End a process with the others, and at the end of the block."""
        try:
            with self._lock:
                self._running.add(process)
                if self._ended:
                    _kill(process)
            yield
        finally:
            with self._lock:
                self._running.discard(process)
            _end(process)

    def end(self) -> None:
        """End all, and those to come."""
        with self._lock:
            self._ended = True
            for process in self._running:
                _kill(process)


def compile_in_child(request: CompileRequest, *, timeout: float) -> dict[str, Any]:
    """Compile in a process of its own and return what it found.

    Args:
        request: What to compile.
        timeout: Seconds after which it is given up.

    Raises:
        PlanError: If it takes too long, dies, or the program itself is at fault.
    """
    _clear_stale()
    with tempfile.TemporaryDirectory(prefix=f"{_FOLDER}{os.getpid()}-") as folder:
        asked, answered, log = (Path(folder) / name for name in ("request", "answer", "log"))
        asked.write_bytes(pickle.dumps(request))
        command = [sys.executable, "-m", "multislice_nb.sharding.compiling", str(asked), str(answered)]
        with log.open("wb") as noise:
            process = subprocess.Popen(
                command,
                env=_environment(request, folder),
                stdin=subprocess.PIPE,  # it ends when this end of it is closed, at the latest by our own death
                stdout=noise,
                stderr=noise,
                start_new_session=True,
            )
            try:
                with _Group.here().holding(process):
                    process.wait(timeout)
            except subprocess.TimeoutExpired as error:
                raise PlanError(
                    f"Compiling for {request.topology or 'CPU'} took more than {timeout:.0f} s.",
                    fix="Give a longer timeout, or a smaller program.",
                ) from error
        if not answered.exists():
            raise _died(process.returncode, log)
        return _checked(json.loads(answered.read_text(encoding="utf-8")))


def _clear_stale() -> None:
    """Remove the folders of processes that were killed together with the compilations they had started."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*-*"):
        owner = folder.name.removeprefix(_FOLDER).partition("-")[0]
        with suppress(OSError):
            is_ours = folder.stat().st_uid == os.getuid()
            is_old = time.time() - folder.stat().st_mtime > _STALE
            if is_ours and is_old and owner.isdecimal() and not psutil.pid_exists(int(owner)):
                shutil.rmtree(folder, ignore_errors=True)


def _environment(request: CompileRequest, folder: str) -> dict[str, str]:
    """The child's environment. The lock that libtpu takes protects real chips: only a child does without."""
    own = {
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path),
        "TPU_LOG_DIR": folder,
        "TPU_MIN_LOG_LEVEL": "3",
        "TPU_SKIP_MDS_QUERY": "1",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    }
    if not request.topology:
        own["JAX_NUM_CPU_DEVICES"] = str(request.devices)
    dropped = {"JAX_NUM_CPU_DEVICES", "JAX_COMPILATION_CACHE_DIR", "COORDINATOR_ADDRESS", "JAX_PROCESS_ID"}
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in dropped and not name.startswith("MEGASCALE_")
    }
    return kept | own


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _end(process: subprocess.Popen[bytes]) -> None:
    _kill(process)
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def _died(code: int | None, log: Path) -> PlanError:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    last = lines[-1][:300] if lines else "it printed nothing"
    return PlanError(
        f"The compiling process ended with code {code} and no answer ({last}).",
        fix="It may have run out of this machine's memory: close something, or compile a smaller program.",
    )


def _checked(answer: dict[str, Any]) -> dict[str, Any]:
    if answer["status"] == "error":
        first = answer["message"].strip().splitlines()
        raise PlanError(
            f"The program does not compile: {answer['type']}: {first[0][:500] if first else ''}",
            fix="Mend the program; the whole traceback is in this error's `detail`.",
            detail=answer["traceback"],
        )
    if answer["status"] == "unknown loop":
        raise PlanError(
            f"The compiler does not know how often {answer['loops'][0]} runs, so its FLOPs and bytes cannot be "
            "counted.",
            fix="Give the loop a fixed number of iterations, as lax.scan and lax.fori_loop with constants do.",
        )
    return answer
