"""The Cloud TPU API as a provider, over google-cloud-tpu."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from multislice_nb.cloud import advice
from multislice_nb.cloud.provider import REQUEST_LABEL
from multislice_nb.cloud.readings import node_status, queued_resource_status, short_name
from multislice_nb.cloud.rest import from_rest
from multislice_nb.cloud.retry import retrying
from multislice_nb.cloud.times import parse_time
from multislice_nb.cloud.wire import to_message
from multislice_nb.errors import AlreadyExistsError, CloudError, NotFoundError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from multislice_nb.cloud.channel import Clients
    from multislice_nb.cloud.request import QueuedResourceRequest
    from multislice_nb.cloud.status import Maintenance, NodeStatus, QueuedResourceStatus

__all__ = ["TpuApi"]

_CALL_SECONDS = 30.0
_ACCEPT_SECONDS = 60.0
_POLL_FROM, _POLL_TO = 0.1, 4.0


class TpuApi:
    """Queued resources and nodes of one project through the Cloud TPU API.

    Args:
        clients: The library's clients, made on the loop that will use this object.
        project: The project everything belongs to.
        is_emulator: Whether it is the emulator that answers.
    """

    def __init__(self, clients: Clients, project: str, *, is_emulator: bool = False) -> None:
        self._clients = clients
        self._project = project
        self._is_emulator = is_emulator
        # A daemon on this machine that does not answer within seconds is gone.
        self._patience = 5.0 if is_emulator else 60.0

    @property
    def project(self) -> str:
        """The project everything belongs to."""
        return self._project

    @property
    def is_emulator(self) -> bool:
        """Whether the emulator answers."""
        return self._is_emulator

    async def create_queued_resource(
        self, request: QueuedResourceRequest, *, request_id: str, labels: Mapping[str, str]
    ) -> None:
        """Ask for slices; a call that is repeated after a lost answer is recognised by its label."""
        zone = str(request.zone)
        owned = {**labels, REQUEST_LABEL: request_id}
        client = self._clients.v2alpha1 if request.api_version == "v2alpha1" else self._clients.v2
        call = {
            "parent": self._parent(zone),
            "queued_resource_id": request.name,
            "queued_resource": to_message(request, owned),
            "request_id": request_id,
        }
        try:
            operation = await self._call(
                f"Creating {request.name}", zone, client.create_queued_resource, call, repeat=True
            )
        except AlreadyExistsError:
            with _unsure(request.name, zone):
                existing = await self.get_queued_resource(request.name, zone)
            if existing.labels.get(REQUEST_LABEL) != request_id:
                raise
            return
        await self._accepted(f"Creating {request.name}", request.name, zone, operation.operation)

    async def list_queued_resources(self, zone: str) -> tuple[QueuedResourceStatus, ...]:
        """All queued resources of a zone; `-` means all zones."""
        call = {"parent": self._parent(zone)}
        listing = self._clients.v2.list_queued_resources
        found = await self._pages("Listing queued resources", zone, listing, call, "queued_resources")
        return tuple(queued_resource_status(message) for message in found)

    async def get_queued_resource(self, name: str, zone: str) -> QueuedResourceStatus:
        """One queued resource."""
        call = {"name": self._name(name, zone)}
        getting = self._clients.v2.get_queued_resource
        return queued_resource_status(await self._call(f"Getting {name}", zone, getting, call, repeat=True))

    async def get_request(self, name: str, zone: str) -> QueuedResourceRequest:
        """The request that an existing queued resource came from, without this tool's own labels."""
        body = await self._body(self._clients.v2, name, zone)
        if "guaranteed" in body and "reservationName" not in body:
            # v2 has no word for reserved capacity without a reservation's name.
            body = await self._body(self._clients.v2alpha1, name, zone)
        _forget_the_past(body)
        request = from_rest(body, name)
        labels = {key: value for key, value in request.labels.items() if not key.startswith("multislice-nb")}
        return request.replace(labels=labels, project=self._project, zone=zone)

    async def _body(self, client: Any, name: str, zone: str) -> dict[str, Any]:
        """A queued resource as JSON, as one version of the API tells it."""
        from google.protobuf.json_format import MessageToDict

        call = {"name": self._name(name, zone)}
        message = await self._call(f"Getting {name}", zone, client.get_queued_resource, call, repeat=True)
        return dict(MessageToDict(type(message).pb(message)))

    async def delete_queued_resource(self, name: str, zone: str, *, force: bool) -> str:
        """Delete it, with force its nodes too; returns the operation, for `finish`."""
        call = {"name": self._name(name, zone), "force": force}
        deleting = self._clients.v2.delete_queued_resource
        answer = await self._call(f"Deleting {name}", zone, deleting, call, repeat=True)
        return str(answer.operation.name)

    async def reset_queued_resource(self, name: str, zone: str) -> str:
        """Restart all its workers; returns the operation, for `finish`."""
        # Not repeated when an answer is lost: a second reset would restart what just came up.
        resetting = self._clients.v2.reset_queued_resource
        answer = await self._call(f"Resetting {name}", zone, resetting, {"name": self._name(name, zone)})
        return str(answer.operation.name)

    async def perform_maintenance(self, name: str, zone: str, node_ids: Sequence[str]) -> str:
        """Bring coming maintenance of these nodes forward; returns the operation, for `finish`."""
        nodes = [f"{self._parent(zone)}/nodes/{node_id}" for node_id in node_ids]
        performing = self._clients.v2alpha1.perform_maintenance_queued_resource
        call = {"name": self._name(name, zone), "node_names": nodes}
        answer = await self._call(f"Maintaining {name}", zone, performing, call)
        return str(answer.operation.name)

    async def finish(self, operation: str, doing: str) -> None:
        """Wait until an operation is done; the caller sets the deadline.

        What the operation returns is not unpacked: v2alpha1's delete answers Empty where its description
        promises a queued resource, and succeeds all the same.

        Raises:
            CloudError: The operation failed.
        """
        pause = _POLL_FROM
        while True:
            raw = await self._operation(operation, doing)
            if raw.done:
                return self._check(raw, doing)
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _POLL_TO)

    async def list_nodes(self, zone: str) -> tuple[NodeStatus, ...]:
        """All nodes of a zone."""
        call = {"parent": self._parent(zone)}
        found = await self._pages("Listing nodes", zone, self._clients.v2.list_nodes, call, "nodes")
        return tuple(node_status(message) for message in found)

    async def list_maintenance(self, zone: str) -> dict[str, Maintenance]:
        """Coming maintenance by node, which only v2alpha1 tells."""
        call = {"parent": self._parent(zone)}
        found = await self._pages("Listing nodes", zone, self._clients.v2alpha1.list_nodes, call, "nodes")
        nodes = [node_status(message) for message in found]
        return {node.node_id: node.maintenance for node in nodes if node.maintenance is not None}

    async def get_guest_attributes(
        self, node_id: str, zone: str, query_path: str
    ) -> tuple[dict[str, str], ...]:
        """What each worker published under a path, in worker order; keys are `namespace/key`."""
        call = {"name": f"{self._parent(zone)}/nodes/{node_id}", "query_path": query_path}
        getting = self._clients.v2.get_guest_attributes
        doing = f"Reading guest attributes of {node_id}"
        answer = await self._call(doing, zone, getting, call, repeat=True)
        return tuple(
            {f"{item.namespace}/{item.key}": item.value for item in worker.query_value.items}
            for worker in answer.guest_attributes
        )

    async def set_node_metadata(self, node_id: str, zone: str, metadata: Mapping[str, str]) -> None:
        """Add these entries to a node's metadata."""
        doing = f"Setting metadata of {node_id}"
        name = f"{self._parent(zone)}/nodes/{node_id}"
        node = await self._call(doing, zone, self._clients.v2.get_node, {"name": name}, repeat=True)
        node.metadata.update(metadata)
        call = {"node": node, "update_mask": {"paths": ["metadata"]}}
        answer = await self._call(doing, zone, self._clients.v2.update_node, call, repeat=True)
        await self.finish(answer.operation.name, doing)

    async def list_accelerator_types(self, zone: str) -> tuple[str, ...]:
        """What a zone offers."""
        call = {"parent": self._parent(zone)}
        listing = self._clients.v2.list_accelerator_types
        found = await self._pages("Listing accelerator types", zone, listing, call, "accelerator_types")
        return tuple(sorted(message.type_ for message in found))

    async def list_runtime_versions(self, zone: str) -> tuple[str, ...]:
        """Software versions that a zone offers."""
        call = {"parent": self._parent(zone)}
        listing = self._clients.v2.list_runtime_versions
        found = await self._pages("Listing runtime versions", zone, listing, call, "runtime_versions")
        return tuple(sorted(message.version for message in found))

    async def list_zones(self) -> tuple[str, ...]:
        """Zones that have TPUs."""
        call = {"name": f"projects/{self._project}"}
        answer = await self._call("Listing zones", "", self._clients.v2.list_locations, call, repeat=True)
        return tuple(sorted(location.location_id for location in answer.locations))

    async def close(self) -> None:
        """Close the channels; calling it again does nothing."""
        await self._clients.close()

    def _parent(self, zone: str) -> str:
        return f"projects/{self._project}/locations/{zone}"

    def _name(self, name: str, zone: str) -> str:
        return f"{self._parent(zone)}/queuedResources/{short_name(name)}"

    async def _call(
        self,
        doing: str,
        zone: str,
        method: Callable[..., Awaitable[Any]],
        request: Any,
        *,
        repeat: bool = False,
    ) -> Any:
        from google.api_core.exceptions import GoogleAPIError
        from google.auth.exceptions import GoogleAuthError

        if not self._clients.channels:
            raise UnavailableError.of_closed()
        retry = retrying(self._patience) if repeat else None
        try:
            return await method(request=request, retry=retry, timeout=_CALL_SECONDS)
        except (GoogleAPIError, GoogleAuthError) as error:
            cause = getattr(error, "cause", None) or error
            raise advice.translate(cause, doing, project=self._project, zone=zone) from error

    async def _pages(
        self,
        doing: str,
        zone: str,
        method: Callable[..., Awaitable[Any]],
        request: dict[str, Any],
        field: str,
    ) -> list[Any]:
        """All entries of a list, page by page, each page repeated when it is lost."""
        found: list[Any] = []
        token = ""
        while True:
            pager = await self._call(doing, zone, method, {**request, "page_token": token}, repeat=True)
            found.extend(getattr(pager, field))
            token = pager.next_page_token
            if not token:
                return found

    async def _operation(self, name: str, doing: str) -> Any:
        zone = name.split("/")[3] if name.count("/") > 3 else ""
        return await self._call(doing, zone, self._clients.v2.get_operation, {"name": name}, repeat=True)

    def _check(self, operation: Any, doing: str) -> None:
        if operation.WhichOneof("result") != "error":
            return
        from google.rpc import code_pb2

        known = code_pb2.Code.DESCRIPTOR.values_by_number
        code = known[operation.error.code].name if operation.error.code in known else "UNKNOWN"
        zone = operation.name.split("/")[3]
        raise advice.advise(advice.Trouble(doing, code, operation.error.message, "", self._project, zone))

    async def _accepted(self, doing: str, name: str, zone: str, operation: Any) -> None:
        """Wait until the request is queued, or until the operation says why it is not."""
        pause = _POLL_FROM
        with contextlib.suppress(TimeoutError), _unsure(name, zone):
            async with asyncio.timeout(_ACCEPT_SECONDS):
                while not operation.done:
                    with contextlib.suppress(NotFoundError):
                        if (await self.get_queued_resource(name, zone)).state != "CREATING":
                            return
                    await asyncio.sleep(pause)
                    pause = min(pause * 1.5, _POLL_TO)
                    operation = await self._operation(operation.name, doing)
        if operation.done:
            self._check(operation, doing)


@contextlib.contextmanager
def _unsure(name: str, zone: str) -> Iterator[None]:
    """What fails after a request was sent says nothing about the request: it may be accepted."""
    try:
        yield
    except CloudError as error:
        raise UnavailableError(
            f"{name} was asked for in {zone}, and what became of it is not known: {error.what}",
            fix="See whether it is there: list(); it may get slices. " + error.fix,
        ) from error


def _forget_the_past(body: dict[str, Any]) -> None:
    """Leave out the times of a queueing policy that are over: asked for again, it is not bound by them."""
    policy = body.get("queueingPolicy", {})
    now = datetime.now(UTC)
    for holder, key in (
        *((policy, key) for key in ("validAfterTime", "validUntilTime")),
        *((policy.get("validInterval", {}), key) for key in ("startTime", "endTime")),
    ):
        if key in holder and parse_time(holder[key]) <= now:
            del holder[key]
