"""From a queued resource to an attached cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multislice_nb import errors
from multislice_nb._portal import sync
from multislice_nb.cluster import registry
from multislice_nb.cluster.cluster import Cluster
from multislice_nb.cluster.formation import START_DEADLINE, Formation, Site
from multislice_nb.cluster.inventory import workers_of
from multislice_nb.config import state_home
from multislice_nb.tpu import AcceleratorType

if TYPE_CHECKING:
    from collections.abc import Callable

    from multislice_nb.cloud import QueuedResource

__all__ = ["aattach", "attach", "site_of"]


def attach(
    queued_resource: QueuedResource | str,
    *,
    deadline: float = START_DEADLINE,
    report: Callable[[str], None] = lambda _: None,
) -> Cluster:
    """Attach to the workers of a queued resource: find the gang that runs there, or start one.

    Args:
        queued_resource: A queued resource, or its name in the project and zone in use.
        deadline: Seconds for SSH to answer on all workers, and again for the gang to start.
        report: Told each step, on the background thread.

    Raises:
        errors.ConnectError: A slice is not READY, or a worker did not answer.
        errors.StartError: An engine, the controller or jax.distributed did not start, or JAX sees other
            devices than the slices have.
    """
    if isinstance(queued_resource, str):
        from multislice_nb.cloud import connect

        queued_resource = connect().get(queued_resource)
    return sync(aattach, queued_resource, deadline=deadline, report=report)


async def aattach(
    queued_resource: QueuedResource,
    *,
    deadline: float = START_DEADLINE,
    report: Callable[[str], None] = lambda _: None,
) -> Cluster:
    """`attach`, to be awaited on the background loop."""
    earlier = registry.find(queued_resource.name)
    if earlier is not None:
        await earlier.adetach()
    formation = Formation(await site_of(queued_resource), report=report)
    await formation.form(deadline=deadline)
    cluster = Cluster(queued_resource, formation)
    await cluster.find_left()
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
    keys: dict[int, str] = {}
    for node in nodes:
        attributes = await cloud.aguest_attributes(node.node_id, "hostkeys/")
        for worker_id, values in enumerate(attributes):
            key = values.get("hostkeys/ssh-ed25519")
            if key:
                keys[node.slice_id * kind.workers + worker_id] = key
    folder = state_home() / "known_hosts" / cloud.project / cloud.zone
    return Site(
        name=queued_resource.name,
        workers=workers,
        accelerator_type=kind,
        node_count=len(nodes),
        tpu=not cloud.is_emulator,
        ssh=cloud.ssh,
        known_hosts=folder / queued_resource.name,
        host_keys=keys,
    )
