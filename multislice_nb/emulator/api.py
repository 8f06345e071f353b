"""The Cloud TPU API's methods over canonical documents; both transports and both versions call these."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import json
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from multislice_nb.emulator import catalog, names, zones
from multislice_nb.emulator.requests import require_location
from multislice_nb.emulator.rpc import ApiError, Json, failed_precondition, invalid, not_found
from multislice_nb.emulator.schema import fit, operation_document

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from multislice_nb.emulator.engine import Engine
    from multislice_nb.emulator.model import NodeRecord, Operation

_DEFAULT_PAGE = 100
_MAX_PAGE = 1000
# Remembered request ids; the service keeps them for an hour, this many are more than that at any rate here.
_REQUEST_IDS = 10_000
_LONGEST_WAIT = 300.0


class Api:
    """One method for each of the service's, named as the service names it.

    Each takes the request as canonical JSON and the API version, and returns the response as canonical JSON.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._requests: OrderedDict[tuple[str, str], Operation] = OrderedDict()

    # Queued resources

    async def ListQueuedResources(self, request: Json, version: str) -> Json:  # noqa: N802
        """The queued resources of a project, in one location or all."""
        return self._list(request, version, "queuedResources", "QueuedResource", self._engine.store.queued)

    async def GetQueuedResource(self, request: Json, version: str) -> Json:  # noqa: N802, ARG002
        """One queued resource."""
        return self._engine.store.queued_resource(_name(request, "queuedResources")).data

    async def CreateQueuedResource(self, request: Json, version: str) -> Json:  # noqa: N802
        """Ask for slices."""
        if (known := self._repeated("create", request)) is not None:
            return operation_document(known)
        parent = self._location(request)
        queued_resource_id = names.check_queued_resource_id(request.get("queuedResourceId", ""))
        record = self._engine.provisioner.request(
            parent, queued_resource_id, request.get("queuedResource", {})
        )
        work = self._engine.provisioner.accept(record)
        operation = self._engine.operations.start(parent, "create", record.name, version, work)
        return self._remember("create", request, operation)

    async def DeleteQueuedResource(self, request: Json, version: str) -> Json:  # noqa: N802
        """Delete a queued resource; with force its nodes too."""
        if (known := self._repeated("delete", request)) is not None:
            return operation_document(known)
        record = self._engine.store.queued_resource(_name(request, "queuedResources"))
        if record.deletion is not None and not record.deletion.done:
            return operation_document(record.deletion)
        self._engine.provisioner.check_deletion(record, force=bool(request.get("force")))
        work = self._engine.provisioner.delete(record)
        record.deletion = self._engine.operations.start(record.parent, "delete", record.name, version, work)
        return self._remember("delete", request, record.deletion)

    async def ResetQueuedResource(self, request: Json, version: str) -> Json:  # noqa: N802
        """Reset all VMs of an ACTIVE queued resource."""
        record = self._engine.store.queued_resource(_name(request, "queuedResources"))
        self._engine.provisioner.check_reset(record)
        work = self._engine.provisioner.reset(record)
        return operation_document(
            self._engine.operations.start(record.parent, "reset", record.name, version, work)
        )

    async def PerformMaintenanceQueuedResource(self, request: Json, version: str) -> Json:  # noqa: N802
        """Perform maintenance on some nodes of a queued resource now."""
        record = self._engine.store.queued_resource(_name(request, "queuedResources"))
        wanted = request.get("nodeNames", [])
        by_name = {name: node for node in record.slices() for name in (node.name, node.spec.node_id)}
        for name in wanted:
            if name not in by_name:
                raise invalid("node_names", f"{name!r} is not a node of {record.name}.")
        chosen = [by_name[name] for name in wanted] or record.slices()

        async def work() -> tuple[str, Json]:
            for node in chosen:
                await self._engine.nodes.maintain(node)
            return "QueuedResource", record.data

        return operation_document(
            self._engine.operations.start(record.parent, "performMaintenance", record.name, version, work())
        )

    # Nodes

    async def ListNodes(self, request: Json, version: str) -> Json:  # noqa: N802
        """The nodes of a project, in one location or all."""
        return self._list(request, version, "nodes", "Node", self._engine.store.nodes)

    async def GetNode(self, request: Json, version: str) -> Json:  # noqa: N802, ARG002
        """One node."""
        return self._node(request).data

    async def CreateNode(self, request: Json, version: str) -> Json:  # noqa: N802
        """Make a node of its own."""
        if (known := self._repeated("createNode", request)) is not None:
            return operation_document(known)
        parent = self._location(request)
        node_id = names.check_node_id(request.get("nodeId", ""))
        node = self._engine.nodes.request(parent, node_id, request.get("node", {}))
        operation = self._operate("create", node, version, self._engine.nodes.create(node))
        return self._remember("createNode", request, operation)

    async def DeleteNode(self, request: Json, version: str) -> Json:  # noqa: N802
        """Delete a node."""
        node = self._node(request)
        if node.state == "DELETING":
            raise failed_precondition(node.name, f"Node {node.name} is being deleted.")
        return operation_document(self._operate("delete", node, version, self._engine.nodes.delete(node)))

    async def StopNode(self, request: Json, version: str) -> Json:  # noqa: N802
        """Turn a node off."""
        node = self._node(request)
        self._engine.nodes.check_single(node, "stopped")
        self._engine.nodes.check_state(node, "READY", "stopped")
        return operation_document(self._operate("stop", node, version, self._engine.nodes.stop(node)))

    async def StartNode(self, request: Json, version: str) -> Json:  # noqa: N802
        """Turn a node on."""
        node = self._node(request)
        self._engine.nodes.check_single(node, "started")
        self._engine.nodes.check_state(node, "STOPPED", "started")
        return operation_document(self._operate("start", node, version, self._engine.nodes.start(node)))

    async def UpdateNode(self, request: Json, version: str) -> Json:  # noqa: N802
        """Change the fields of a node that the mask names."""
        changes = request.get("node", {})
        node = self._engine.store.node(_check(changes.get("name", ""), "nodes", "node.name"))
        fields = self._engine.nodes.check_update(request.get("updateMask", ""), changes)
        work = self._engine.nodes.update(node, fields, changes)
        return operation_document(self._operate("update", node, version, work))

    async def PerformMaintenance(self, request: Json, version: str) -> Json:  # noqa: N802
        """Perform maintenance on a node now."""
        node = self._node(request)
        self._engine.nodes.check_state(node, "READY", "maintained")
        return operation_document(
            self._operate("performMaintenance", node, version, self._engine.nodes.maintain(node))
        )

    async def SimulateMaintenanceEvent(self, request: Json, version: str) -> Json:  # noqa: N802
        """Let a maintenance event happen to workers of a node."""
        node = self._node(request)
        self._engine.nodes.check_state(node, "READY", "maintained")
        workers = _workers(node, request.get("workerIds", []))

        async def work() -> tuple[str, Json]:
            await self._engine.repairs.maintain(node, workers)
            return "Node", node.data

        return operation_document(self._operate("simulateMaintenanceEvent", node, version, work()))

    async def GetGuestAttributes(self, request: Json, version: str) -> Json:  # noqa: N802, ARG002
        """What the VMs of a node say about themselves, worker by worker."""
        node = self._node(request)
        path = request.get("queryPath", "").rstrip("/")
        chosen = set(_workers(node, request.get("workerIds", [])) or range(len(node.vms)))
        answer = []
        for vm in node.vms:
            if vm.worker_id not in chosen:
                continue
            items = [
                {"namespace": namespace, "key": key, "value": value}
                for namespace, key, value in (vm.guest_attributes() if vm.up else [])
                if path in {"", namespace, f"{namespace}/{key}"}
            ]
            answer.append({"queryPath": request.get("queryPath", ""), "queryValue": {"items": items}})
        return {"guestAttributes": answer}

    # What a location offers

    async def GenerateServiceIdentity(self, request: Json, version: str) -> Json:  # noqa: N802, ARG002
        """The service agent of a project."""
        project = names.parse_parent(request.get("parent", "")).project
        return {"identity": {"email": f"service-{project}@cloud-tpu.iam.gserviceaccount.com"}}

    async def ListAcceleratorTypes(self, request: Json, version: str) -> Json:  # noqa: N802
        """The accelerator types of a zone."""
        return self._list(
            request, version, "acceleratorTypes", "AcceleratorType", catalog.accelerator_types(request)
        )

    async def GetAcceleratorType(self, request: Json, version: str) -> Json:  # noqa: N802, ARG002
        """One accelerator type of a zone."""
        return catalog.offered(request, "acceleratorTypes", catalog.accelerator_types)

    async def ListRuntimeVersions(self, request: Json, version: str) -> Json:  # noqa: N802
        """The runtime versions of a zone."""
        return self._list(
            request, version, "runtimeVersions", "RuntimeVersion", catalog.runtime_versions(request)
        )

    async def GetRuntimeVersion(self, request: Json, version: str) -> Json:  # noqa: N802, ARG002
        """One runtime version of a zone."""
        return catalog.offered(request, "runtimeVersions", catalog.runtime_versions)

    async def ListReservations(self, request: Json, version: str) -> Json:  # noqa: N802
        """The reservations of a project."""
        found = {}
        for name, chips in self._engine.admissions.reservations.items():
            standard = {
                "size": str(int(chips)),
                "capacityUnits": "CHIPS",
                "resourceType": "tpu",
                "usage": {"total": str(self._engine.admissions.reservation_use(name))},
            }
            found[name] = {"name": name, "standard": standard, "state": "ACTIVE"}
        return self._list(request, version, "reservations", "Reservation", found)

    async def ListLocations(self, request: Json, version: str) -> Json:  # noqa: N802
        """The zones with TPUs."""
        project = names.parse_project(request.get("name", ""))
        scope = {"parent": f"projects/{project}/locations/-", **request}
        found = {
            catalog.location(project, zone)["name"]: catalog.location(project, zone)
            for zone in zones.all_zones()
        }
        return self._list(scope, version, "locations", "Location", found)

    async def GetLocation(self, request: Json, version: str) -> Json:  # noqa: N802, ARG002
        """One zone."""
        parent = names.parse_parent(request.get("name", ""), "name")
        if parent.location not in zones.all_zones():
            raise not_found(parent.name)
        return catalog.location(parent.project, parent.location)

    # Operations

    async def ListOperations(self, request: Json, version: str) -> Json:  # noqa: N802
        """The operations of a location."""
        found = {name: operation_document(op) for name, op in self._engine.store.operations.items()}
        scope = {**request, "parent": request.get("name", "")}
        return self._list(scope, version, "operations", "Operation", found)

    async def GetOperation(self, request: Json, version: str) -> Json:  # noqa: N802, ARG002
        """One operation."""
        return operation_document(self._operation(request))

    async def CancelOperation(self, request: Json, version: str) -> Json:  # noqa: N802, ARG002
        """Ask an operation to stop."""
        self._engine.operations.cancel(self._operation(request))
        return {}

    async def DeleteOperation(self, request: Json, version: str) -> Json:  # noqa: N802, ARG002
        """Forget an operation."""
        self._engine.operations.delete(self._operation(request))
        return {}

    async def WaitOperation(self, request: Json, version: str) -> Json:  # noqa: N802, ARG002
        """Wait until an operation is done or the time is up, and answer how it stands."""
        operation = self._operation(request)
        seconds = float(request.get("timeout", f"{_LONGEST_WAIT}s").removesuffix("s"))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(seconds, _LONGEST_WAIT)):
                await operation.finished.wait()
        return operation_document(operation)

    # Helpers

    def _operation(self, request: Json) -> Operation:
        return self._engine.store.operation(_name(request, "operations"))

    def _node(self, request: Json) -> NodeRecord:
        return self._engine.store.node(_name(request, "nodes"))

    def _operate(self, verb: str, node: NodeRecord, version: str, work: Any) -> Operation:
        return self._engine.operations.start(node.parent, verb, node.name, version, work)

    def _location(self, request: Json) -> names.Parent:
        parent = require_location(names.parse_parent(request.get("parent", "")))
        if parent.location not in zones.all_zones():
            text = f"Permission denied on 'locations/{parent.location}' (or it may not exist)."
            raise ApiError("PERMISSION_DENIED", text)
        return parent

    def _repeated(self, verb: str, request: Json) -> Operation | None:
        request_id = request.get("requestId", "")
        return self._requests.get((verb, request_id)) if request_id else None

    def _remember(self, verb: str, request: Json, operation: Operation) -> Json:
        if request.get("requestId"):
            self._requests[verb, request["requestId"]] = operation
            while len(self._requests) > _REQUEST_IDS:
                self._requests.popitem(last=False)
        return operation_document(operation)

    def _list(self, request: Json, version: str, field: str, kind: str, found: Mapping[str, Any]) -> Json:
        """One page of what lies in the request's scope, in the order of names."""
        scope = names.parse_parent(request.get("parent", ""))
        inside = sorted(
            name for name in found if scope.covers(names.parse_parent("/".join(name.split("/")[:4])))
        )
        size = int(request.get("pageSize", 0))
        if size < 0:
            raise invalid("page_size", "page_size must not be negative.")
        size = min(size or _DEFAULT_PAGE, _MAX_PAGE)
        after = _read_token(request.get("pageToken", ""), scope.name)
        rest = [name for name in inside if name > after]
        page = [getattr(found[name], "data", found[name]) for name in rest[:size]]
        answer: Json = {}
        if page:
            answer[field] = (
                [fit(version, kind, item, extras=True) for item in page] if kind != "Operation" else page
            )
        if len(rest) > size:
            answer["nextPageToken"] = _token(rest[size - 1], scope.name)
        return answer


def _token(after: str, scope: str) -> str:
    return base64.urlsafe_b64encode(json.dumps([scope, after]).encode()).decode()


def _read_token(token: str, scope: str) -> str:
    if not token:
        return ""
    try:
        of, after = json.loads(base64.urlsafe_b64decode(token.encode()))
    except (ValueError, TypeError, binascii.Error) as error:
        raise invalid("page_token", "page_token is not one that this list gave.") from error
    if of != scope or not isinstance(after, str):
        raise invalid("page_token", "page_token is not one that this list gave.")
    return after


def _check(name: str, collection: str, field: str = "name") -> str:
    names.parse_name(name, collection, field)
    return name


def _name(request: Json, collection: str) -> str:
    return _check(request.get("name", ""), collection)


def _workers(node: NodeRecord, asked: Iterable[str]) -> list[int]:
    # gcloud sends [""] for all workers.
    workers = []
    for text in asked:
        if not text:
            continue
        if not text.isascii() or not text.isdigit() or int(text) >= node.spec.accelerator.workers:
            last = node.spec.accelerator.workers - 1
            raise invalid("worker_ids", f"{text!r} is not a worker of {node.name}; it has 0 to {last}.")
        workers.append(int(text))
    return workers
