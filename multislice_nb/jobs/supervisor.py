"""The supervisor on a worker: from the boot of the machine to the end of the run.

It is this package's own Python, run by the startup script from the archive in the store:
`python3 -m multislice_nb.jobs.supervisor --store URL --job NAME --run N --queued-resource NAME`.
"""

from __future__ import annotations

import argparse
import io
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import urllib.request
from base64 import b64decode
from typing import TYPE_CHECKING

from multislice_nb.jobs import layout
from multislice_nb.jobs.assembling import Assembly
from multislice_nb.jobs.attempting import Attempting
from multislice_nb.jobs.beat import Beat, Watch
from multislice_nb.jobs.command import end_leftovers
from multislice_nb.jobs.ending import finish
from multislice_nb.jobs.gang import Gang
from multislice_nb.jobs.machine import Machine, access_token
from multislice_nb.jobs.record import JobSpec
from multislice_nb.jobs.shipping import Shipper, masked, ship_rest
from multislice_nb.jobs.store import Store
from multislice_nb.jobs.tpu_api import OwnQueuedResource
from multislice_nb.jobs.worker import Signals, Worker, local_folder, log, new_boot, patiently, place, rank_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["main"]

_SETUP_SECONDS = 3600.0
_OUTAGE = 900.0
"""Seconds for which a store that does not answer is waited for before there is a job to ask for its limits."""
_REFUSALS = {400, 401, 403, 404}
_TAIL = 2000
"""Characters of the setup's output that are told."""
_ENDPOINT = "CLOUDSDK_API_ENDPOINT_OVERRIDES_SECRETMANAGER"


def main(argv: Sequence[str] | None = None) -> int:
    """Supervise this worker's part of a run; returns when it has ended or the machine goes down."""
    parser = argparse.ArgumentParser(prog="multislice_nb.jobs.supervisor")
    for name in ("store", "job", "queued-resource"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--run", type=int, required=True)
    arguments = parser.parse_args(argv)
    signals = Signals()

    def terminated(*_: object) -> None:
        signals.terminated = True

    signal.signal(signal.SIGTERM, terminated)
    store = Store(arguments.store)
    run_store = store.child(layout.run_folder(arguments.job, arguments.run))
    outage = time.monotonic() + _OUTAGE
    document = patiently("reading the job", lambda: run_store.read_json(layout.JOB), outage, _passes)
    if document is None:
        raise SystemExit(f"there is no job {arguments.job} in {store.url}")
    job = JobSpec.from_json(document)
    began = patiently("saying that it begins", Gang(run_store, job).began, outage, _passes)
    machine, boot = Machine.here(), new_boot()
    rank = rank_of(job, machine)
    own_log = _logging(local_folder(job.name, arguments.run) / "logs" / f"boot-{boot}.log")
    shipper = Shipper(own_log, run_store, f"logs/{rank:05d}/boot-{boot}", max(1.0, job.limits.heartbeat))
    beat = Beat(
        run_store, rank, job.limits.heartbeat, boot=boot, phase="preparing", node=machine.node_id,
        place=place(job, rank), address=machine.address,
    )  # fmt: skip
    try:
        worker = Worker(
            job=job,
            run=arguments.run,
            store=store,
            machine=machine,
            own=OwnQueuedResource(arguments.queued_resource),
            beat=beat,
            watch=Watch(run_store),
            boot=boot,
            deadline=began + job.limits.time_limit,
            signals=signals,
        )
        _supervise(worker, shipper)
    finally:
        beat.close()
        shipper.close(30.0)
    return 0


def _supervise(worker: Worker, shipper: Shipper) -> None:
    log.info("%s on %s, boot %s", worker.place, worker.machine.node_id, worker.boot)
    left = end_leftovers()
    if left:
        log.warning("ended %d processes that an earlier supervisor left", left)
    trouble = _prepare(worker)
    if worker.masks or not worker.job.secrets:  # else it could not be masked
        _ship_what_was_left(worker)
    if trouble and not worker.signals.terminated:  # a machine that goes down comes back
        worker.gang.end("failed", f"{worker.place} could not be prepared: {trouble}", rank=worker.rank)
    while not worker.signals.terminated:
        attempt = Assembly(worker).wait()
        if attempt is None:
            break
        Attempting(worker, attempt).run()
    if not worker.signals.terminated:
        finish(worker, shipper.flush)
    log.info("this supervisor ends")


def _ship_what_was_left(worker: Worker) -> None:
    """Logs of earlier boots: their last words were still on this disk when the machine went down."""
    for path in sorted((worker.folder / "logs").glob("[0-9]*.log")):
        folder = layout.log_folder(worker.rank, int(path.stem))
        try:
            missing = ship_rest(path, worker.gang.store, folder, worker.masks)
        except OSError as error:
            log.warning("the rest of %s could not be uploaded: %s", path.name, error)
            return
        if missing:
            log.info("uploaded the last %d bytes of %s, which an earlier boot left", missing, path.name)


def _logging(path: Path) -> Path:
    """Log to the startup script's output and to a file that is shipped."""
    path.parent.mkdir(parents=True, exist_ok=True)
    form = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    for handler in (logging.StreamHandler(sys.stderr), logging.FileHandler(path)):
        handler.setFormatter(form)
        log.addHandler(handler)
    log.setLevel(logging.INFO)
    return path


def _prepare(worker: Worker) -> str:
    """Put the code in place, read the secrets and run the setup; what went wrong, or nothing."""

    def passes(error: OSError) -> bool:
        return _passes(error) and not worker.signals.terminated and not worker.late

    limit = time.monotonic() + worker.job.limits.boot_timeout
    try:
        patiently("reading the code", lambda: _unpack(worker), limit, passes)
        worker.results.mkdir(parents=True, exist_ok=True)
        values = patiently("reading the secrets", lambda: _secrets(worker.job), limit, passes)
    except (OSError, tarfile.TarError, KeyError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    checkpoints = worker.store.object_url(f"{layout.job_folder(worker.job.name)}/checkpoints")
    if worker.store.is_local:
        checkpoints = checkpoints.removeprefix("file://")
        os.makedirs(checkpoints, exist_ok=True)  # noqa: PTH103 - a URL's path
    worker.masks = tuple(values.values())
    worker.environment = {
        **os.environ,
        "MULTISLICE_NB_RUN": str(worker.run),
        "MULTISLICE_NB_CHECKPOINTS": checkpoints,
        "MULTISLICE_NB_RESULTS": str(worker.results),
        **values,
    }
    return _setup(worker)


def _passes(error: OSError) -> bool:
    """Whether it may work later: an outage passes; what is not there, or not allowed, stays so."""
    missing = isinstance(error, FileNotFoundError | PermissionError)
    return not missing and getattr(error, "code", None) not in _REFUSALS


def _unpack(worker: Worker) -> None:
    code = worker.folder / "code"
    stamp = worker.folder / "code.digest"
    if stamp.exists() and stamp.read_text() == worker.job.package:
        return
    shutil.rmtree(code, ignore_errors=True)
    code.mkdir(parents=True)
    if worker.job.package:
        content = worker.store.read(layout.package_key(worker.job.package))
        if content is None:
            raise FileNotFoundError(f"the code's archive {worker.job.package} is not in {worker.store.url}")
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            archive.extractall(code, filter="data")
    stamp.write_text(worker.job.package)


def _secrets(job: JobSpec) -> dict[str, str]:
    """The values of the job's secrets, from Secret Manager."""
    root = os.environ.get(_ENDPOINT) or "https://secretmanager.googleapis.com/"
    values = {}
    for name, version in job.secrets.items():
        request = urllib.request.Request(  # noqa: S310 - Google's or the one that the submitter named
            f"{root.rstrip('/')}/v1/{version}:access",
            headers={"Authorization": f"Bearer {access_token()}"},
        )
        with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310
            values[name] = b64decode(json.loads(response.read())["payload"]["data"]).decode()
    return values


def _setup(worker: Worker) -> str:
    """Run the job's own preparation once on this machine; what went wrong, or nothing."""
    stamp = worker.folder / "setup.done"
    if not worker.job.setup or stamp.exists():
        return ""
    started = time.monotonic()
    path = worker.folder / "logs" / "setup.log"
    with path.open("wb") as output:
        try:
            code = subprocess.run(
                ["bash", "-c", worker.job.setup],
                cwd=worker.folder / "code",
                env={**worker.environment, **worker.job.env},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=_SETUP_SECONDS,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            code = -signal.SIGKILL
    length = 4 * _TAIL  # bytes; a character has up to four
    start = max(0, path.stat().st_size - length)
    tail = masked(path, start, length, worker.masks).decode(errors="replace")[-_TAIL:]
    log.info("setup ended with status %d after %.0f s\n%s", code, time.monotonic() - started, tail)
    if code:
        return f"its setup ended with status {code}: {tail.strip()[-300:]}"
    stamp.touch()
    return ""


if __name__ == "__main__":
    sys.exit(main())
