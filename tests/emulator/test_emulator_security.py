"""Nobody without the token gets in, and nothing that is sent harms the daemon."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

import grpc
import psutil
import pytest
from google.cloud import tpu_v2
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from tests.emulator.emulated_tpu import PARENT, Emulated
else:
    from emulated_tpu import PARENT, Emulated

QUEUE = f"/v2/{PARENT}/queuedResources"
NODE = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base"}


@pytest.mark.parametrize("token", ["", "wrong", "x" * 5000])
@pytest.mark.parametrize("path", [QUEUE, "/emulator/v1/status", "/compute/v1/projects/x", "/nowhere", "/"])
def test_rest_needs_the_token(emulated: Emulated, path: str, token: str) -> None:
    """Every path answers 401 without it, those that do not exist included."""
    assert emulated.rest("GET", path, token=token).status == 401


@pytest.mark.parametrize("token", [None, "Bearer wrong", "wrong"])
def test_grpc_needs_the_token(emulated: Emulated, token: str | None) -> None:
    """Every call is UNAUTHENTICATED without it, whatever its bytes."""
    metadata = [("authorization", token)] if token else []
    with grpc.insecure_channel(emulated.address.target) as channel:
        for method in ("google.cloud.tpu.v2.Tpu/ListNodes", "google.longrunning.Operations/ListOperations"):
            call = channel.unary_unary(f"/{method}", None, None)
            with pytest.raises(grpc.RpcError) as refusal:
                call(b"\xff\xff", metadata=metadata)
            assert refusal.value.code() == grpc.StatusCode.UNAUTHENTICATED


def test_another_host_name_is_refused(emulated: Emulated) -> None:
    """A page that rebinds its name to this machine is refused even with the token; no CORS header is sent."""
    assert emulated.rest("GET", QUEUE, Host="evil.example:80").status == 403
    with socket.create_connection((emulated.address.host, emulated.address.port)) as client:
        client.sendall(
            b"OPTIONS / HTTP/1.1\r\nHost: x\r\nOrigin: http://evil.example\r\nConnection: close\r\n\r\n"
        )
        answer = b"".join(iter(lambda: client.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 403")
    assert b"access-control" not in answer.lower()


def test_everything_listens_on_loopback_only(emulated: Emulated) -> None:
    """No socket of the daemon is reachable from another machine."""
    emulated.active("listening", 2)
    emulated.ssh("listening-0", "true")
    daemon = psutil.Process(emulated.address.pid)
    listening = [c.laddr.ip for c in daemon.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    assert len(listening) >= 3
    assert all(ip.startswith("127.") for ip in listening)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"[]", 400),
        (b'"text"', 400),
        (b"\xff\xfe", 400),
        (b"[" * 200_000, 400),
        (b'{"a":' * 90_000, 400),
        (b'{"tpu": 7}', 400),
        (b'{"tpu": {"nodeSpec": {}}}', 400),
        (b'{"surprise": true}', 400),
        (b'{"state": {"state": "NO_SUCH_STATE"}}', 400),
        (b'{"spot": {}, "guaranteed": {}}', 400),
        (b'{"queueingPolicy": {"validUntilDuration": "soon"}}', 400),
        (b"{}", 400),
        (b" " * (5 * 1024 * 1024), 413),
    ],
)
def test_malformed_bodies(emulated: Emulated, body: bytes, status: int) -> None:
    """Each is a clear error of the right code, and the daemon is as before."""
    answer = emulated.rest("POST", f"{QUEUE}?queuedResourceId=bad", body)
    assert answer.status == status
    assert answer.body["error"]["message"]
    assert emulated.rest("GET", QUEUE).body == {}


@pytest.mark.parametrize(
    "name",
    ["..", "", "A", "a/b", "a%2F..%2Fb", "a b", "$(id)", "a;id", "a" * 64, "-a", "a-", "ü", "a\n", "`id`"],
)
def test_bad_queued_resource_ids(emulated: Emulated, name: str) -> None:
    """Ids with traversal, shell metacharacters or the wrong length are refused, and no folder is made."""
    from urllib.parse import quote

    answer = emulated.rest(
        "POST", f"{QUEUE}?queuedResourceId={quote(name, safe='')}", {"tpu": {"nodeSpec": [{"node": NODE}]}}
    )
    assert (answer.status, answer.body["error"]["status"]) == (400, "INVALID_ARGUMENT")
    assert not list((emulated.address.home / "vms").iterdir())


@pytest.mark.parametrize(
    "change",
    [
        {"nodeId": ".."},
        {"nodeId": "a/../../b"},
        {"nodeId": "$(touch x)"},
        {"multisliceParams": {"nodeCount": 2, "nodeIdPrefix": "../x"}},
        {"multisliceParams": {"nodeCount": 1}},
        {"multisliceParams": {"nodeCount": 257}},
        {"multisliceParams": {"nodeCount": -1}},
        {"node": {**NODE, "tags": ["a; rm -rf ~"]}},
        {"node": {**NODE, "labels": {"A": "b"}}},
        {"node": {**NODE, "metadata": {"key with space": "x"}}},
        {"node": {**NODE, "metadata": {"big": "x" * 300_000}}},
        {"node": {**NODE, "acceleratorType": "v4-18"}},
        {"node": {**NODE, "acceleratorType": "v6e-16"}},
        {"node": {**NODE, "acceleratorType": ""}},
        {"node": {**NODE, "acceleratorType": "tpu7x-8"}},
        {"node": {**NODE, "runtimeVersion": "none-such"}},
        {"node": {**NODE, "acceleratorConfig": {"type": "V4", "topology": "2x2x2"}}},
        {"parent": "projects/other/locations/us-central2-b"},
    ],
)
def test_bad_slices(emulated: Emulated, change: dict[str, Any]) -> None:
    """Each wrong field is named in the error, and nothing is made."""
    spec = {"parent": PARENT, "node": NODE, "nodeId": "fine", **change}
    if "multisliceParams" in change:
        del spec["nodeId"]
    answer = emulated.rest("POST", f"{QUEUE}?queuedResourceId=bad", {"tpu": {"nodeSpec": [spec]}})
    assert (answer.status, answer.body["error"]["status"]) == (400, "INVALID_ARGUMENT")
    assert answer.body["error"]["details"][0]["fieldViolations"][0]["field"].startswith("queued_resource.tpu")
    assert emulated.rest("GET", QUEUE).body == {}


def test_metadata_is_data(emulated: Emulated) -> None:
    """Shell metacharacters in metadata reach the VM as they are and run nowhere."""
    nasty = "$(touch /tmp/owned) `id` \" ' ; & \n %s \\"
    emulated.active("nasty", node={"metadata": {"note": nasty}})
    url = "http://$GCE_METADATA_HOST/computeMetadata/v1/instance/attributes/note"
    assert emulated.ssh("nasty-0", f"curl -s -H Metadata-Flavor:Google {url}").stdout.decode() == nasty


def test_errors_carry_details_over_grpc(emulated: Emulated, bearer: list[tuple[str, str]]) -> None:
    """The client library shows the field violations that REST shows."""
    from google.api_core import exceptions

    with grpc.insecure_channel(emulated.address.target) as channel:
        client = tpu_v2.TpuClient(transport=TpuGrpcTransport(channel=channel))
        with pytest.raises(exceptions.InvalidArgument) as refusal:
            client.create_queued_resource(
                parent=PARENT,
                queued_resource_id="Bad",
                queued_resource=tpu_v2.QueuedResource(),
                metadata=bearer,
            )
    assert refusal.value.details[0].field_violations[0].field == "queued_resource_id"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["tpu", "nodeSpec", "node", "spot", "state", "metadata", "x"]), inner, max_size=4
        )
    ),
    max_leaves=20,
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=JSON)
def test_no_json_harms_it(emulated: Emulated, body: Any) -> None:
    """Whatever JSON is sent, the answer is an error of the caller's, never one of the daemon's."""
    answer = emulated.rest("POST", f"{QUEUE}?queuedResourceId=any", json.dumps(body).encode())
    assert 400 <= answer.status < 500


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(min_size=1, max_size=200))
def test_no_bytes_harm_the_port(emulated: Emulated, data: bytes) -> None:
    """Whatever bytes a stranger sends to the port, the next caller is served."""
    with socket.create_connection((emulated.address.host, emulated.address.port), timeout=5) as client:
        client.sendall(data)
    assert emulated.rest("GET", "/emulator/v1/status").status == 200


def test_a_burst_of_requests_is_served(emulated: Emulated) -> None:
    """Two thousand calls over fifty connections are all answered right."""
    import asyncio

    import aiohttp

    async def burst() -> set[int]:
        headers = {"Authorization": f"Bearer {emulated.address.token}"}
        limit = aiohttp.TCPConnector(limit=50)
        async with aiohttp.ClientSession(headers=headers, connector=limit) as session:

            async def one() -> int:
                async with session.get(f"{emulated.address.url}{QUEUE}") as response:
                    await response.read()
                    return response.status

            return set(await asyncio.gather(*(one() for _ in range(2000))))

    assert asyncio.run(burst()) == {200}
