"""From a queued resource to an attached cluster."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING

from multislice_nb import errors
from multislice_nb._bounded import gather
from multislice_nb._portal import sync
from multislice_nb.cluster import registry
from multislice_nb.cluster.access import give_access
from multislice_nb.cluster.cluster import Cluster
from multislice_nb.cluster.formation import START_DEADLINE, Formation
from multislice_nb.cluster.health import look
from multislice_nb.cluster.inventory import workers_of
from multislice_nb.cluster.recovery import recovered
from multislice_nb.cluster.settings import GangSettings
from multislice_nb.cluster.site import Site
from multislice_nb.cluster.ways import proxy_commands
from multislice_nb.config import state_home
from multislice_nb.tpu import AcceleratorType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from multislice_nb.cloud import NodeStatus, QueuedResource

__all__ = ["aattach", "attach", "site_of"]

CALLS = 32
"""Slices that the Cloud TPU API is asked about at a time; its quota counts the calls of a minute."""


def attach(
    queued_resource: QueuedResource | str,
    *,
    deadline: float = START_DEADLINE,
    recover: bool = False,
    repair_deadline: float | None = None,
    settings: GangSettings | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> Cluster:
    """Attach to the workers of a queued resource: find the gang that runs there, or start one.

    Args:
        queued_resource: A queued resource, or its name in the project and zone in use.
        deadline: Seconds for SSH to answer on all workers, and again for the gang to start.
        recover: Whether to wait for slices that are being repaired or reset. What is left of an earlier gang is
            ended on all of them; a gang that is whole is found as ever.
        repair_deadline: Seconds for the repair; `%config Multislice.repair_deadline`, or half an hour, if None.
        settings: How patient the gang is, and whether it is started anew by itself.
        report: Told each step, on the background thread.

    Raises:
        errors.ConnectError: A slice is not READY, or a worker did not answer.
        errors.StartError: An engine, the controller or jax.distributed did not start, or JAX sees other
            devices than the slices have.
        errors.QueuedResourceFailedError: It was to recover, and cannot.
        errors.WaitTimeoutError: The repair took longer than its deadline; names what was waited for.
    """
    from multislice_nb.cloud import QueuedResource, connect

    if isinstance(queued_resource, str):
        queued_resource = connect().get(queued_resource)
    if not isinstance(queued_resource, QueuedResource):
        raise errors.InvalidRequestError(
            f"{queued_resource!r} is no queued resource to attach to.",
            fix="Give what cloud.create or cloud.get returned, or its name.",
        )
    return sync(
        aattach,
        queued_resource,
        deadline=deadline,
        recover=recover,
        repair_deadline=repair_deadline,
        settings=settings,
        report=report,
    )


async def aattach(
    queued_resource: QueuedResource,
    *,
    deadline: float = START_DEADLINE,
    recover: bool = False,
    repair_deadline: float | None = None,
    settings: GangSettings | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> Cluster:
    """`attach`, to be awaited on the background loop."""
    patience = settings or GangSettings.configured()
    earlier = registry.find(queued_resource.name)
    if earlier is not None:
        await earlier.adetach()

    async def form() -> Formation:
        formation = Formation(await site_of(queued_resource), heartbeat=patience.heartbeat, report=report)
        await formation.form(deadline=deadline)
        return formation

    if recover:
        formation = await recovered(queued_resource, form, deadline=repair_deadline, report=report)
    else:
        formation = await form()
    try:
        cluster = Cluster(queued_resource, formation, patience)
        await cluster.find_left()
    except BaseException:
        await formation.leave()
        raise
    registry.add(cluster)
    return cluster


async def site_of(queued_resource: QueuedResource) -> Site:
    """Ask the Cloud TPU API for all that a formation must know."""
    cloud = queued_resource.cloud
    await queued_resource.arefresh()
    status = queued_resource.status
    if status.state != "ACTIVE":
        raise errors.ConnectError(
            f"{queued_resource.name} is {status.state}, not ACTIVE.",
            fix=f"Wait for it first: %multislice wait {queued_resource.name}, or qr.wait().",
        )
    nodes = await queued_resource.anodes()
    kind = AcceleratorType.parse(status.accelerator_type)
    workers = workers_of(nodes, workers_per_slice=kind.workers, ssh=cloud.ssh)
    # Names are not under host keys, and only some ways need them.
    path = "" if "{hostname}" in (cloud.ssh.proxy_command or "") else "hostkeys/"
    keys, hostnames = await _guests(queued_resource, nodes, kind.workers, path)
    # Another queued resource of the same name later has other host keys, and begins with an empty file.
    folder = state_home() / "known_hosts" / cloud.project / queued_resource.zone / queued_resource.name
    made = status.create_time.strftime("%Y%m%dT%H%M%S.%f") if status.create_time else "hosts"
    await asyncio.to_thread(_forget_others, folder, made)
    return Site(
        name=queued_resource.name,
        workers=workers,
        accelerator_type=kind,
        node_count=len(nodes),
        tpu=not cloud.is_emulator,
        ssh=cloud.ssh,
        known_hosts=folder / made,
        host_keys=keys,
        proxies=proxy_commands(
            cloud.ssh.proxy_command,
            workers,
            hostnames=hostnames,
            project=cloud.project,
            zone=queued_resource.zone,
        ),
        ask=functools.partial(look, queued_resource),
        grant=functools.partial(give_access, queued_resource) if cloud.ssh.make_access else None,
    )


def _forget_others(folder: Path, made: str) -> None:
    """Drop the host keys of earlier queued resources of this name."""
    if folder.is_file():
        folder.unlink()
    for other in folder.glob("*"):
        if other.name != made:
            other.unlink(missing_ok=True)


async def _guests(
    queued_resource: QueuedResource, nodes: Sequence[NodeStatus], workers_per_slice: int, path: str
) -> tuple[dict[int, str], dict[int, str]]:
    """What the workers publish of themselves, by rank: host keys, and names."""
    cloud, zone = queued_resource.cloud, queued_resource.zone
    found = await gather(lambda node: cloud.aguest_attributes(node.node_id, path, zone), nodes, at_once=CALLS)
    keys: dict[int, str] = {}
    names: dict[int, str] = {}
    for node, attributes in zip(nodes, found, strict=True):
        for worker_id, values in enumerate(attributes):
            rank = node.slice_id * workers_per_slice + worker_id
            if key := values.get("hostkeys/ssh-ed25519"):
                keys[rank] = key
            # gcloud takes the key of that name in any namespace.
            found_names = [value for key, value in values.items() if key.lower().endswith("/hostname")]
            if found_names:
                names[rank] = found_names[0]
    return keys, names
