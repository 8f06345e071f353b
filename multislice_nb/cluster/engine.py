"""The process on a worker that becomes an engine (or, on worker 0, the controller).

`python -m multislice_nb.cluster.engine FOLDER ROLE` reads `FOLDER/ROLE.json`, leaves the SSH session that
started it, and hands over to ipyparallel. It runs on the worker from the shipped copy of this package, so it
imports nothing but the standard library, ipyparallel and a part of ours that needs neither.
"""

from __future__ import annotations

import faulthandler
import functools
import json
import multiprocessing
import os
import secrets
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multislice_nb import _descriptors

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

from multislice_nb.cluster.oom import oom_kills

__all__ = ["main"]

STALE = ("MEGASCALE_", "JAX_COORDINATOR", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
"""Prefixes of variables left by an earlier tenant that would make JAX wait for peers that are gone."""

EARLIEST = ("PYTHON", "LD_", "DYLD_")
"""Prefixes of variables that a process heeds only if it starts with them."""

_STARTED_ANEW = "MULTISLICE_NB_STARTED_ANEW"

CONNECTION_DEADLINE = 120.0
"""Seconds that an engine waits for its controller before it ends by itself."""

FILES = 65536
"""Files that a process may open if the system lets it: gloo alone takes one for every other worker."""

SILENCE = 30.0
"""Seconds without a heartbeat after which an engine counts as lost; the end of its process is told at once."""

ORPHANED = 150.0
"""Seconds without its controller after which an engine ends by itself."""

STOPPED_DEADLINE = 2.0
"""Seconds that a stopped engine has to go on before it is ended: its peers would wait in a collective for ever."""


def main(argv: list[str]) -> None:
    """Detach, set the environment, and run the controller or an engine until it is told to stop."""
    folder, role = Path(argv[0]), argv[1]
    spec: dict[str, Any] = json.loads((folder / f"{role}.json").read_text())
    if os.getpid() != os.getsid(0):
        os.setsid()
    (folder / f"{role}.pid").write_text(str(os.getpid()))
    (folder / f"{role}.end").unlink(missing_ok=True)
    _take_kept_variables()
    os.environ.update(spec["environment"])
    os.environ["IPYTHONDIR"] = str(folder / "ipython")
    os.environ["MULTISLICE_NB_FOLDER"] = str(folder)
    _descriptors.allow(FILES)
    if role == "controller":
        child = os.fork()
        if not child:
            _run_controller(folder, spec)
            return
        _ignore_signals()
        _see_it_end(folder, role, child)
        return
    from multislice_nb.cluster import nanny  # before the fork, for both

    ours, theirs = multiprocessing.Pipe()
    child = os.fork()
    if not child:
        ours.close()
        _run_engine(folder, spec, theirs)
        return
    theirs.close()
    _ignore_signals()
    nanny.watch(ours, functools.partial(_see_it_end, folder, role, child))


def _ignore_signals() -> None:
    """Leave to the child what is meant for it: the parent ends when that does."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def _take_kept_variables() -> None:
    """Have the user's variables in place of an earlier tenant's, as if this process had been started with them."""
    if os.environ.pop(_STARTED_ANEW, ""):
        return
    for name in [name for name in os.environ if name.startswith(STALE)]:
        del os.environ[name]
    kept = _kept_variables()
    paths = [os.environ.get("PYTHONPATH", ""), kept.get("PYTHONPATH", "")]
    os.environ.update(kept)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))  # without ours nothing of this is found
    if any(name.startswith(EARLIEST) for name in kept):
        environment = os.environ | {_STARTED_ANEW: "1"}
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)  # noqa: S606 - as it was started


def _kept_variables() -> dict[str, str]:
    """What the user set for the engines and commands of this worker."""
    try:
        kept: dict[str, str] = json.loads((Path.home() / ".multislice_nb" / "environment.json").read_text())
    except FileNotFoundError:
        return {}
    return kept


def _run_controller(folder: Path, spec: dict[str, Any]) -> None:
    os.environ["IPP_ENABLE_CURVE"] = "1"
    from ipyparallel.controller.app import IPController
    from traitlets.config import Config

    # CurveZMQ encrypts and authenticates; a key for signing besides keeps every part from warning that it has none.
    # It goes by configuration and not by argument, which anybody on the worker could read.
    config = Config({"Session": {"key": secrets.token_hex(32).encode()}})
    IPController.launch_instance(
        [
            f"--profile-dir={_profile(folder, 'profile')}",
            f"--IPController.engine_ip={spec['address']}",
            "--IPController.client_ip=127.0.0.1",  # the notebook comes through SSH, nobody else comes at all
            f"--IPController.location={spec['address']}",
            f"--HeartMonitor.period={spec['heartbeat_milliseconds']}",
            f"--HeartMonitor.max_heartmonitor_misses={_beats(SILENCE, spec['heartbeat_milliseconds'])}",
            "--log-level=ERROR",
        ],
        config=config,
    )


def _beats(seconds: float, period: int) -> int:
    """How often a period of so many milliseconds fits into that time."""
    return max(1, int(seconds * 1000 / period))


def _run_engine(folder: Path, spec: dict[str, Any], nanny_line: Connection) -> None:
    # Appended to, so that who has read it can empty it.
    stacks = (folder / "stacks.txt").open("a")
    faulthandler.enable(stacks)
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=False)
    # The slow imports happen while the controller still starts.
    import jax  # noqa: F401

    from multislice_nb.cluster.nanny import Engine

    Engine.nanny_line = nanny_line
    os.environ["IPP_CONNECTION_INFO"] = _connection(folder / "connection.json")
    Engine.launch_instance(
        [
            f"--profile-dir={_profile(folder, 'engine-profile')}",
            f"--IPEngine.work_dir={Path.home()}",  # where `push` puts code and data, and shell commands begin
            "--IPEngine.timeout=60",
            f"--IPEngine.max_heartbeat_misses={_beats(ORPHANED, spec['heartbeat_milliseconds'] + 500)}",
            "--IPEngine.out_stream_factory=multislice_nb.cluster.streams.PythonStream",
            "--IPKernelApp.extensions=multislice_nb.cluster.agent",
            "--log-level=ERROR",
        ]
    )


def _profile(folder: Path, name: str) -> Path:
    """A profile of our own, which ipyparallel wants to exist, so that the user's settings play no part."""
    profile = folder / name
    profile.mkdir(exist_ok=True, mode=0o700)
    return profile


def _connection(path: Path) -> str:
    """The controller's connection info, once the notebook has delivered it."""
    limit = time.monotonic() + CONNECTION_DEADLINE
    while not path.exists():
        if time.monotonic() > limit:
            raise SystemExit(f"no connection info came within {CONNECTION_DEADLINE:.0f} s: {path}")
        time.sleep(0.05)
    return path.read_text()


def _see_it_end(folder: Path, role: str, child: int) -> None:
    """Wait for the process that does the work, and note how it ended, which nobody could tell afterwards."""
    stopped, when, kills = "", 0.0, oom_kills()
    while True:
        _, status = os.waitpid(child, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            when, later = time.time(), _after_stop(child)
            if later is None:
                stopped = f"stopped by {signal.Signals(os.WSTOPSIG(status)).name} and not continued, "
                os.kill(child, signal.SIGKILL)
                continue
            status = later
        if not os.WIFCONTINUED(status):
            break
    code = os.waitstatus_to_exitcode(status)
    end = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
    if code == -signal.SIGKILL and not stopped and oom_kills() > kills:
        end += "; the kernel killed for lack of memory there meanwhile"
    (folder / f"{role}.end").write_text(f"{when if stopped else time.time()} {stopped}{end}\n")


def _after_stop(child: int) -> int | None:
    """The status of a stopped process once it goes on or ends; None if it does not soon, and a gang cannot wait."""
    limit = time.monotonic() + STOPPED_DEADLINE
    while time.monotonic() < limit:
        pid, status = os.waitpid(child, os.WCONTINUED | os.WNOHANG)
        if pid:
            return status
        time.sleep(0.1)
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
