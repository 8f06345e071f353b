"""Submitting: everything a run needs is put into the store, then its slices are asked for."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shlex
import time
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multislice_nb import config
from multislice_nb.cloud.ledger import JOB_LABEL
from multislice_nb.cloud.times import format_duration, format_time, parse_duration, parse_time
from multislice_nb.errors import AlreadyExistsError, ConfigurationError, InvalidRequestError
from multislice_nb.jobs import layout, slices
from multislice_nb.jobs.record import JobSpec, Limits
from multislice_nb.jobs.script import require_script
from multislice_nb.jobs.startup import startup_script
from multislice_nb.jobs.store import ENVIRONMENT, STORAGE_EMULATOR, Store
from multislice_nb.tpu import AcceleratorType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from multislice_nb.cloud import Cloud, QueuedResourceRequest
    from multislice_nb.jobs.job import Job
    from multislice_nb.jobs.package import Package

__all__ = ["DryRun", "default_store", "emulator_limits", "launch", "requirements_of", "submit"]

_KEPT = ("env", "secrets", "setup")


@dataclass(frozen=True, slots=True)
class DryRun:
    """What submitting would do.

    Attributes:
        spec: The job.
        request: The queued resource request, with the startup script in it.
        record: Where the job would be written down, as a URL.
        uploads: Objects that would be written, by URL, with their size in bytes.
        files: What the code's archive would hold.
    """

    spec: JobSpec
    record: str
    request: QueuedResourceRequest = field(repr=False)
    uploads: Mapping[str, int]
    files: tuple[str, ...] = field(repr=False)

    def __str__(self) -> str:
        lines = [f"write {url} ({size} bytes)" for url, size in self.uploads.items()]
        lines += [f"  with {name}" for name in self.files]
        job = json.dumps(self.spec.to_json(), indent=2, ensure_ascii=False)
        return "\n".join([*lines, f"write {self.record}", job, "", self.request.to_gcloud()])


def default_store() -> Store:
    """The store where none is named: MULTISLICE_NB_STORE, or with the emulator a folder of its own.

    Raises:
        ConfigurationError: It is needed and not named.
    """
    named = os.environ.get(ENVIRONMENT)
    if named:
        return Store(named)
    if config.settings().is_emulator:
        return Store(config.state_home() / "store")
    raise ConfigurationError(
        "No store for jobs is configured.",
        fix=f"Name a bucket that the workers can read and write: store='gs://…', or {ENVIRONMENT}.",
    )


def emulator_limits() -> Limits:
    """Limits for slices that come and go within seconds, and a store that answers within milliseconds."""
    return Limits(
        backoff=0.5, term_grace=5.0, heartbeat=0.5, lost_after=10.0, final_grace=60.0, boot_timeout=60.0
    )


def requirements_of(folder: Path | None, *, tpu: bool) -> tuple[str, ...]:
    """What a job needs when nothing else is said: its requirements.txt, or JAX at this machine's version."""
    listed = folder / "requirements.txt" if folder else None
    if listed is not None and listed.is_file():
        lines = (line.split(" #")[0].strip() for line in listed.read_text().splitlines())
        return tuple(line for line in lines if line and not line.startswith("#"))
    version = importlib.metadata.version("jax")
    return (f"jax[tpu]=={version}" if tpu else f"jax=={version}",)


def submit(
    name: str,
    command: str | Sequence[str],
    *,
    accelerator_type: str,
    node_count: int = 1,
    folder: str | Path | None = None,
    requirements: Sequence[str] | None = None,
    setup: str = "",
    env: Mapping[str, str] | None = None,
    secrets: Mapping[str, str] | None = None,
    limits: Limits | None = None,
    store: str | Path | Store | None = None,
    cloud: Cloud | None = None,
    dry_run: bool = False,
    source: str = "",
    **request: Any,
) -> Job | DryRun:
    """Run a command on every worker of new slices, unattended.

    It runs to its end whether this process lives or not: after a preemption it is started again when the
    slice is repaired, after a failure as often as the limits say, and in the end logs and results are in the
    store and the slices are deleted.

    Submitting again under the same name gives the existing job where it is the same, so that a cell may be
    run twice.

    Args:
        name: Names the job, its folder in the store, and the queued resource.
        command: What runs on every worker, in the folder of the code: a shell command, or its words.
        accelerator_type: What each slice is, as `v4-16`.
        node_count: Slices.
        folder: The folder of the code; None where the command needs none.
        requirements: Packages as pip writes them; None for the folder's requirements.txt, or JAX.
        setup: A shell command that prepares each worker once.
        env: Environment variables of the command.
        secrets: Environment variables whose values the workers read from Secret Manager.
        limits: Times and counts.
        store: Where everything is kept: `gs://bucket/folder`, or a folder with the emulator.
        cloud: The connection; the default one when None.
        dry_run: Only say what would be done.
        source: What it was made from, for people.
        **request: Further fields of the queued resource request: spot, reserved, network, …

    Raises:
        InvalidRequestError: Something is wrong with it; nothing was written.
        AlreadyExistsError: There is another job of that name.
        CloudError: The slices were refused.
    """
    from multislice_nb.cloud import connect
    from multislice_nb.cluster.payload import payload
    from multislice_nb.jobs.job import Job
    from multislice_nb.jobs.package import pack

    _refuse_limits(request)
    request = {key: _plain(key, value) for key, value in request.items()}
    cloud = cloud or connect()
    store = store if isinstance(store, Store) else Store(store) if store else default_store()
    _check_reach(store, cloud)
    place = Path(folder).expanduser() if folder is not None else None
    package = pack(place) if place is not None else None
    library = payload()
    kind = AcceleratorType.parse(accelerator_type)
    wanted = requirements_of(place, tpu=not cloud.is_emulator) if requirements is None else requirements
    spec = JobSpec(
        name=name,
        command=command if isinstance(command, str) else shlex.join(map(str, command)),
        accelerator_type=kind.name,
        node_count=node_count,
        workers_per_slice=kind.workers,
        package=package.name if package else "",
        library=library.name,
        requirements=tuple(wanted),
        setup=setup,
        env={key: str(value) for key, value in (env or {}).items()},
        secrets={key: str(value) for key, value in (secrets or {}).items()},
        request=request,
        limits=limits or (emulator_limits() if cloud.is_emulator else Limits()),
        source=source or (str(place.resolve()) if place else ""),
    )
    if not setup:  # which may make one
        require_script(spec.command, package.files if package else None)
    asked = queued_resource_request(cloud, store, spec, 1)
    if dry_run:
        return _rehearsal(store, spec, asked, package, len(library.content))
    record = f"{layout.job_folder(name)}/{layout.JOB}"
    if store.exists(record):
        existing = _existing(Job(store, name, cloud=cloud), spec)
        if store.exists(f"{layout.run_folder(name, 1)}/{layout.RUN}"):
            return existing
        # Whoever submitted it got no further than its record: go on from there.
    if package:
        store.create(layout.package_key(package.name), package.content)
    store.create(layout.package_key(library.name), library.content)
    if not store.create_json(record, spec.to_json()):
        _existing(Job(store, name, cloud=cloud), spec)  # somebody else submits it just now
    launch(cloud, store, spec, 1)
    return Job(store, name, cloud=cloud)


def _refuse_limits(request: Mapping[str, Any]) -> None:
    """Say where limits are passed to who passes them beside the rest, as the command line does."""
    strays = {name: value for name, value in request.items() if name in Limits.__dataclass_fields__}
    if strays:
        given = ", ".join(f"{name}={value!r}" for name, value in strays.items())
        raise InvalidRequestError(
            f"{next(iter(strays))} is one of a job's limits.", fix=f"Pass it there: limits=Limits({given})."
        )


def _plain(name: str, value: Any) -> Any:
    """A field of the request as a record can hold it: times are texts there.

    Raises:
        InvalidRequestError: No record can hold it.
    """
    if name == "startup_script":
        raise InvalidRequestError(
            "A job's workers have a startup script of the job's own.", fix="Pass what prepares them as setup."
        )
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, datetime):
        return format_time(parse_time(value))
    try:
        return json.loads(json.dumps(value, default=asdict))
    except (TypeError, ValueError):
        raise InvalidRequestError(
            f"{name} cannot be {value!r}: a job's record is JSON.",
            fix="Give texts, numbers, lists and dictionaries.",
        ) from None


def _check_reach(store: Store, cloud: Cloud) -> None:
    """Refuse a store that the workers cannot reach: nothing would tell of it but their silence."""
    if store.is_near and not cloud.is_emulator:
        what = "a folder of" if store.is_local else f"a bucket of {os.environ[STORAGE_EMULATOR]} on"
        raise InvalidRequestError(
            f"{store.url} is {what} this machine, which the workers on Google Cloud cannot reach.",
            fix="Name a bucket: store='gs://…'."
            if store.is_local
            else f"Leave {STORAGE_EMULATOR} out of the environment.",
        )
    if cloud.is_emulator and not store.is_near:
        raise InvalidRequestError(
            f"{store.url} is a bucket of Google Cloud, and the emulator's workers have no credentials for it.",
            fix=f"Leave the store out, name a folder, or a local server for buckets in {STORAGE_EMULATOR}.",
        )


def queued_resource_request(cloud: Cloud, store: Store, spec: JobSpec, run: int) -> QueuedResourceRequest:
    """The request for a run's slices, checked."""
    name = spec.name if run == 1 else f"{spec.name}-{run}"
    fields = dict(spec.request)
    project, zone = fields.get("project") or cloud.project, fields.get("zone") or cloud.zone
    full = f"projects/{project}/locations/{zone}/queuedResources/{name}"
    script = startup_script(spec, store=store.url, run=run, queued_resource=full)
    # The workers read the store and delete their own slices.
    fields.setdefault("scopes", ("https://www.googleapis.com/auth/cloud-platform",))
    fields["labels"] = {**fields.get("labels", {}), JOB_LABEL: spec.name}
    return cloud.request(
        name,
        accelerator_type=spec.accelerator_type,
        node_count=spec.node_count,
        startup_script=script,
        **fields,
    )


def launch(cloud: Cloud, store: Store, spec: JobSpec, run: int) -> bool:
    """Ask for the slices of a run and write down that it was done; says whether it was this call that did.

    Of several callers, on whatever machines, one claims the run; what it has written none of the others touches.
    """
    request = queued_resource_request(cloud, store, spec, run)
    document = {
        "time": time.time(),
        "queued_resource": request.name,
        "project": request.project,
        "zone": request.zone,
        "nodes": _nodes(request),
        "emulator": cloud.is_emulator,
        "emulator_home": slices.emulator() if cloud.is_emulator else "",
    }
    folder = store.child(layout.run_folder(spec.name, run))
    if not folder.create_json(layout.RUN, document):
        return False
    try:
        # Another caller's claim may have failed meanwhile, and taken the record with it.
        store.create_json(f"{layout.job_folder(spec.name)}/{layout.JOB}", spec.to_json())
        folder.write_json(layout.JOB, spec.to_json())
        cloud.create(request, ttl=_longest(request, spec.limits))
    except Exception:
        if run == 1:  # nothing runs under this name: it is free again
            store.remove(layout.job_folder(spec.name))
        else:
            store.remove(layout.run_folder(spec.name, run))
        raise
    folder.write_json(layout.RUN, {**document, "created": True})
    return True


def _nodes(request: QueuedResourceRequest) -> str:
    """A regular expression for the names of the nodes."""
    first = request.node_ids[0]
    return first if request.node_count == 1 else f"{first.removesuffix('-0')}-[0-9]+"


def _longest(request: QueuedResourceRequest, limits: Limits) -> float | None:
    """Seconds after which the request's time to live is over: known only where its wait has an end."""
    waiting = request.valid_until_duration
    if waiting is None:
        return None
    return parse_duration(waiting).total_seconds() + limits.time_limit + limits.final_grace + 3600.0


def _existing(job: Job, spec: JobSpec) -> Job:
    """The job of that name, if it is the same."""
    ignored = {"library", "limits", "source", "version"}
    before, now = (
        job.submitted.to_json(),
        spec.to_json(),
    )  # a retry may have asked for another number of slices
    differing = sorted(
        key
        for key in now
        if key not in ignored
        and json.dumps(before.get(key), sort_keys=True) != json.dumps(now[key], sort_keys=True)
    )
    if differing:
        raise AlreadyExistsError(
            f"There is a job {spec.name} already, and it differs in {', '.join(differing)}.",
            fix=f"Choose another name, or remove that one when it has ended: job remove {spec.name}.",
        )
    return job


def _rehearsal(
    store: Store, spec: JobSpec, request: QueuedResourceRequest, package: Package | None, library: int
) -> DryRun:
    uploads = {store.object_url(layout.package_key(spec.library)): library}
    if package:
        uploads[store.object_url(layout.package_key(package.name))] = len(package.content)
    uploads = {
        url: size for url, size in uploads.items() if not store.exists(url.removeprefix(f"{store.url}/"))
    }
    record = store.object_url(f"{layout.job_folder(spec.name)}/{layout.JOB}")
    return DryRun(spec, record, request, uploads, package.files if package else ())
