"""The official client libraries cannot tell the emulator from the service."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import tpu_v2, tpu_v2alpha1
from google.cloud.tpu_v2.services.tpu import transports as v2_transports
from google.cloud.tpu_v2alpha1.services.tpu import transports as alpha_transports
from google.longrunning import operations_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.emulator.emulated_tpu import PARENT, Emulated
else:
    from emulated_tpu import PARENT, Emulated


ALPHA_PARAMS = {"multi_node_params": {"node_count": 2}}
V2_PARAMS = {"multislice_params": {"node_count": 2}}


class _Bearer(grpc.UnaryUnaryClientInterceptor):  # type: ignore[misc]  # gRPC has no types
    def __init__(self, token: str) -> None:
        self._header = ("authorization", f"Bearer {token}")

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        return continuation(details._replace(metadata=[*(details.metadata or ()), self._header]), request)


class _Token(AnonymousCredentials):
    def __init__(self, token: str) -> None:
        super().__init__()
        self._secret = token

    def apply(self, headers: dict[str, str], token: str | None = None) -> None:
        headers["authorization"] = f"Bearer {self._secret}"

    def before_request(self, request: Any, method: str, url: str, headers: dict[str, str]) -> None:
        self.apply(headers)


@pytest.fixture
def channel(emulated: Emulated) -> Iterator[Any]:
    """A gRPC channel that sends the token."""
    plain = grpc.insecure_channel(emulated.address.target)
    yield grpc.intercept_channel(plain, _Bearer(emulated.address.token))
    plain.close()


@pytest.fixture(params=["v2-grpc", "v2-rest", "v2alpha1-grpc"])
def api(request: pytest.FixtureRequest, emulated: Emulated, channel: Any) -> Any:
    """The client module and a client, for each version and transport."""
    if request.param == "v2-grpc":
        return tpu_v2, tpu_v2.TpuClient(transport=v2_transports.TpuGrpcTransport(channel=channel))
    if request.param == "v2alpha1-grpc":
        return tpu_v2alpha1, tpu_v2alpha1.TpuClient(
            transport=alpha_transports.TpuGrpcTransport(channel=channel)
        )
    transport = v2_transports.TpuRestTransport(
        host=emulated.address.target, credentials=_Token(emulated.address.token), url_scheme="http"
    )
    return tpu_v2, tpu_v2.TpuClient(transport=transport)


def _ask(module: Any, client: Any, name: str, **extra: Any) -> Any:
    params = V2_PARAMS if module is tpu_v2 else ALPHA_PARAMS
    node = {"accelerator_type": "v4-8", "runtime_version": "tpu-ubuntu2204-base"}
    resource = {"tpu": {"node_spec": [{"parent": PARENT, "node": node, **params}]}, **extra}
    return client.create_queued_resource(parent=PARENT, queued_resource_id=name, queued_resource=resource)


def test_the_samples_flow(api: Any, emulated: Emulated) -> None:
    """Create, poll the operation, get, list, reset, refuse to delete, delete with force: as the samples do it."""
    module, client = api
    created = _ask(module, client, "flow").result(timeout=30)
    assert created.name == f"{PARENT}/queuedResources/flow"
    emulated.until(lambda: client.get_queued_resource(name=created.name).state.state.name == "ACTIVE")
    active = client.get_queued_resource(name=created.name)
    assert [spec.node_id for spec in active.tpu.node_spec] == ["flow-0", "flow-1"]
    assert created.name in [found.name for found in client.list_queued_resources(parent=PARENT)]
    nodes = {node.name: node for node in client.list_nodes(parent=PARENT) if "/nodes/flow-" in node.name}
    assert sorted(nodes) == [f"{PARENT}/nodes/flow-0", f"{PARENT}/nodes/flow-1"]
    assert all(node.state.name == "READY" and node.multislice_node for node in nodes.values())
    assert client.reset_queued_resource(name=created.name).result(timeout=30).state.state.name == "ACTIVE"
    with pytest.raises((exceptions.FailedPrecondition, exceptions.BadRequest), match="force"):
        client.delete_queued_resource(name=created.name)
    request = module.DeleteQueuedResourceRequest(name=created.name, force=True)
    deletion = client.delete_queued_resource(request=request)
    if module is tpu_v2:
        deletion.result(timeout=30)
    else:  # the real pair has this defect, and the samples catch it
        with pytest.raises(TypeError, match="Empty"):
            deletion.result(timeout=30)
    with pytest.raises(exceptions.NotFound):
        client.get_queued_resource(name=created.name)


def test_node_calls(api: Any) -> None:
    """A node of its own is created, stopped, started, updated and deleted."""
    module, client = api
    node = module.Node(
        accelerator_type="v5litepod-8", runtime_version="v2-alpha-tpuv5-lite", labels={"team": "research"}
    )
    zone = "projects/p/locations/us-west4-a"
    made = client.create_node(parent=zone, node_id="single", node=node).result(timeout=30)
    assert (made.state.name, made.labels["team"]) == ("READY", "research")
    assert client.stop_node({"name": made.name}).result(timeout=30).state.name == "STOPPED"
    assert client.start_node({"name": made.name}).result(timeout=30).state.name == "READY"
    made.labels = {"team": "serving"}
    changed = client.update_node(node=made, update_mask={"paths": ["labels"]}).result(timeout=30)
    assert dict(changed.labels) == {"team": "serving"}
    client.delete_node(name=made.name).result(timeout=30)
    assert not list(client.list_nodes(parent="projects/p/locations/-"))


def test_what_a_zone_offers(api: Any) -> None:
    """Accelerator types and runtime versions are those of the zone; locations are the zones with TPUs."""
    _, client = api
    types = {entry.type_: entry for entry in client.list_accelerator_types(parent=PARENT)}
    assert types["v4-16"].accelerator_configs[0].topology == "2x2x2"
    assert not any(name.startswith("v6e") for name in types)
    assert client.get_accelerator_type(name=types["v4-16"].name).type_ == "v4-16"
    versions = [entry.version for entry in client.list_runtime_versions(parent=PARENT)]
    assert "tpu-ubuntu2204-base" in versions
    locations = client.list_locations({"name": "projects/emulated-project"}).locations
    assert "us-central2-b" in {location.location_id for location in locations}
    assert client.get_location({"name": PARENT}).location_id == "us-central2-b"
    assert "@" in client.generate_service_identity({"parent": PARENT}).identity.email


def test_operations(api: Any, emulated: Emulated) -> None:
    """Operations are got, listed, cancelled and deleted."""
    module, client = api
    operation = _ask(module, client, "ops").operation
    emulated.until(lambda: client.get_operation({"name": operation.name}).done)
    assert operation.name in _operations(client)
    client.cancel_operation({"name": operation.name})
    client.delete_operation({"name": operation.name})
    with pytest.raises(exceptions.NotFound):
        client.get_operation({"name": operation.name})


def _operations(client: Any) -> set[str]:
    """The names of all operations, page by page: other tests of the session have left theirs."""
    names: set[str] = set()
    request = {"name": PARENT, "page_token": ""}
    while True:
        page = client.list_operations(request)
        names |= {found.name for found in page.operations}
        if not page.next_page_token:
            return names
        request["page_token"] = page.next_page_token


def test_waiting_for_an_operation(emulated: Emulated, channel: Any) -> None:
    """WaitOperation answers when the operation is done, or as it stands when the time is up."""
    emulated.fault("slow-operations", seconds=1.0)
    client = tpu_v2.TpuClient(transport=v2_transports.TpuGrpcTransport(channel=channel))
    name = _ask(tpu_v2, client, "waited").operation.name
    wait = channel.unary_unary(
        "/google.longrunning.Operations/WaitOperation",
        operations_pb2.WaitOperationRequest.SerializeToString,
        operations_pb2.Operation.FromString,
    )
    assert not wait(operations_pb2.WaitOperationRequest(name=name, timeout={"nanos": 1000})).done
    assert wait(operations_pb2.WaitOperationRequest(name=name, timeout={"seconds": 30})).done


def test_pages(api: Any, emulated: Emulated) -> None:
    """A list comes in pages of the asked size, in order and whole; a foreign page token is refused."""
    module, client = api
    for index in range(5):
        _ask(module, client, f"page-{index}").result(timeout=30)
    request = module.ListQueuedResourcesRequest(parent=PARENT, page_size=2)
    pages = list(client.list_queued_resources(request=request).pages)
    assert [len(page.queued_resources) for page in pages] == [2, 2, 1]
    names = [found.name.rsplit("-", 1)[-1] for page in pages for found in page.queued_resources]
    assert names == ["0", "1", "2", "3", "4"]
    with pytest.raises(exceptions.InvalidArgument if not _is_rest(client) else exceptions.BadRequest):
        client.list_queued_resources(
            request=module.ListQueuedResourcesRequest(parent=PARENT, page_token="bm9uc2Vuc2U=")
        )


def test_a_repeated_request_id_creates_once(api: Any) -> None:
    """The same request_id gives the same operation, not a second resource or ALREADY_EXISTS."""
    module, client = api
    node = {"accelerator_type": "v4-8", "runtime_version": "tpu-ubuntu2204-base"}
    request = module.CreateQueuedResourceRequest(
        parent=PARENT,
        queued_resource_id="once",
        queued_resource={"tpu": {"node_spec": [{"parent": PARENT, "node": node, "node_id": "once"}]}},
        request_id="0f9d6a4c-5c2e-4cf8-8ad6-0d0c0c0c0c0c" + str(_is_rest(client)) + module.__name__,
    )
    first = client.create_queued_resource(request=request).operation.name
    assert client.create_queued_resource(request=request).operation.name == first
    request.request_id = ""
    with pytest.raises((exceptions.AlreadyExists, exceptions.Conflict)):
        client.create_queued_resource(request=request)


def test_alpha_calls(emulated: Emulated, channel: Any) -> None:
    """Maintenance and reservations exist in v2alpha1, and only there."""
    emulated.fault("reservation", name=f"{PARENT}/reservations/mine", chips=64)
    alpha = tpu_v2alpha1.TpuClient(transport=alpha_transports.TpuGrpcTransport(channel=channel))
    _ask(tpu_v2alpha1, alpha, "alpha").result(timeout=30)
    emulated.until(lambda: emulated.state("alpha") == "ACTIVE")
    assert [found.standard.size for found in alpha.list_reservations({"parent": PARENT})] == [64]
    name = f"{PARENT}/nodes/alpha-0"
    assert alpha.perform_maintenance({"name": name}).result(timeout=30).state.name == "READY"
    event = alpha.simulate_maintenance_event({"name": name, "worker_ids": ["0"]})
    emulated.until(lambda: alpha.get_node(name=name).health.name == "UNHEALTHY_MAINTENANCE")
    assert alpha.get_node(name=name).upcoming_maintenance.maintenance_status.name in {"PENDING", "ONGOING"}
    assert event.result(timeout=30).health.name == "HEALTHY"
    request = {"name": f"{PARENT}/queuedResources/alpha", "node_names": ["alpha-1"]}
    assert alpha.perform_maintenance_queued_resource(request).result(timeout=30).state.state.name == "ACTIVE"
    assert emulated.rest("POST", f"/v2/{name}:performMaintenance", {}).status == 404


async def test_asynchronous_clients(emulated: Emulated, bearer: list[tuple[str, str]]) -> None:
    """The asynchronous clients of both versions work over one channel."""
    async with grpc.aio.insecure_channel(emulated.address.target) as channel:
        for module, transports in ((tpu_v2, v2_transports), (tpu_v2alpha1, alpha_transports)):
            client = module.TpuAsyncClient(transport=transports.TpuGrpcAsyncIOTransport(channel=channel))
            params = V2_PARAMS if module is tpu_v2 else ALPHA_PARAMS
            node = {"accelerator_type": "v4-8", "runtime_version": "tpu-ubuntu2204-base"}
            name = module.__name__.rsplit(".", 1)[-1].replace("_", "-")
            resource = {"tpu": {"node_spec": [{"parent": PARENT, "node": node, **params}]}}
            operation = await client.create_queued_resource(
                parent=PARENT, queued_resource_id=name, queued_resource=resource, metadata=bearer
            )
            listed = [
                found async for found in await client.list_queued_resources(parent=PARENT, metadata=bearer)
            ]
            assert any(found.name.endswith(name) for found in listed)
            assert operation.operation.name.startswith(PARENT)


def _is_rest(client: Any) -> bool:
    return "Rest" in type(client.transport).__name__


def test_a_bare_client_needs_only_the_environment(emulated: Emulated, tmp_path: Path) -> None:
    """`TpuClient()` in an untouched script reaches the emulator by what `emulator env` prints."""
    from multislice_nb.emulator.client_environment import client_environment

    script = (
        "from google.cloud import tpu_v2\n"
        f"print(len(list(tpu_v2.TpuClient().list_accelerator_types(parent={PARENT!r}))))\n"
    )
    environment = {**os.environ, **client_environment(emulated.address)}
    argv = [sys.executable, "-c", script]
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 10
    stranger = json.loads((emulated.address.home / "tls" / "service-account.json").read_text())
    subprocess.run(
        ["openssl", "genpkey", "-algorithm", "RSA", "-out", str(tmp_path / "key")],
        check=True,
        capture_output=True,
    )
    stranger["private_key"] = (tmp_path / "key").read_text()
    (tmp_path / "account.json").write_text(json.dumps(stranger))
    environment["GOOGLE_APPLICATION_CREDENTIALS"] = str(tmp_path / "account.json")
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert "Unauthenticated" in done.stderr
