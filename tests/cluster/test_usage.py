from __future__ import annotations

import socket
import threading
from concurrent import futures
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from multislice_nb.cluster.far import usage as far
from multislice_nb.cluster.usage import UsageReport, WorkerUsage

if TYPE_CHECKING:
    from collections.abc import Iterator

GIB = 2**30


def _messages() -> Any:
    """The messages of libtpu's runtime metric service, as far as a gauge needs them."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="metrics.proto", package="tpu.monitoring.runtime", syntax="proto3"
    )

    def message(name: str, *fields: tuple[str, int, Any, str]) -> None:
        made = file.message_type.add(name=name)
        one_of = name in {"Gauge", "AttrValue"}  # of which a zero is told too
        if one_of:
            made.oneof_decl.add(name="one")
        for field, number, kind, of in fields:
            repeated = field.endswith("s") and kind == kinds.TYPE_MESSAGE
            made.field.add(
                name=field,
                number=number,
                type=kind,
                type_name=f".tpu.monitoring.runtime.{of}" if of else None,
                label=kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL,
                oneof_index=0 if one_of else None,
            )

    message("Gauge", ("as_double", 1, kinds.TYPE_DOUBLE, ""), ("as_int", 2, kinds.TYPE_INT64, ""))
    message("KeyValueList", ("attributes", 1, kinds.TYPE_MESSAGE, "Attribute"))
    message(
        "AttrValue",
        ("string_attr", 1, kinds.TYPE_STRING, ""),
        ("int_attr", 3, kinds.TYPE_INT64, ""),
        ("kvlist_attr", 6, kinds.TYPE_MESSAGE, "KeyValueList"),
    )
    message("Attribute", ("key", 1, kinds.TYPE_STRING, ""), ("value", 2, kinds.TYPE_MESSAGE, "AttrValue"))
    message(
        "Metric", ("attribute", 1, kinds.TYPE_MESSAGE, "Attribute"), ("gauge", 3, kinds.TYPE_MESSAGE, "Gauge")
    )
    message("TPUMetric", ("name", 1, kinds.TYPE_STRING, ""), ("metrics", 3, kinds.TYPE_MESSAGE, "Metric"))
    message("MetricRequest", ("metric_name", 1, kinds.TYPE_STRING, ""))
    message("MetricResponse", ("metric", 1, kinds.TYPE_MESSAGE, "TPUMetric"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return lambda name: message_factory.GetMessageClass(
        pool.FindMessageTypeByName(f"tpu.monitoring.runtime.{name}")
    )


class Libtpu:
    """A stand-in for the server in the process that holds a TPU: grpcio's own, with the service's messages.

    Attributes:
        values: By metric, the gauge of each device.
        named: How a device is named: `int`, `digits` or `list`.
        port: Where it serves, on loopback.
    """

    def __init__(self) -> None:
        self.values: dict[str, list[float]] = {}
        self.named = "int"
        message = _messages()
        request, self._response = message("MetricRequest"), message("MetricResponse")
        handler = grpc.unary_unary_rpc_method_handler(
            self._answer,
            request_deserializer=request.FromString,
            response_serializer=lambda made: made.SerializeToString(),
        )
        self._server = grpc.server(futures.ThreadPoolExecutor(2))
        service = "tpu.monitoring.runtime.RuntimeMetricService"
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service, {"GetRuntimeMetric": handler}),)
        )
        self.port = self._server.add_insecure_port("localhost:0")
        self._server.start()

    def _answer(self, request: Any, context: Any) -> Any:
        if request.metric_name not in self.values:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such metric")
        response = self._response()
        response.metric.name = request.metric_name
        for device, value in reversed(list(enumerate(self.values[request.metric_name]))):
            metric = response.metric.metrics.add()
            self._name(metric.attribute, device)
            if "bytes" in request.metric_name:
                metric.gauge.as_int = int(value)
            else:
                metric.gauge.as_double = value
        return response

    def _name(self, attribute: Any, device: int) -> None:
        attribute.key = "device-id"
        if self.named == "int":
            attribute.value.int_attr = device
        elif self.named == "digits":
            attribute.value.string_attr = str(device)
        else:
            inner = attribute.value.kvlist_attr.attributes.add(key="device_ordinal")
            inner.value.int_attr = device

    def stop(self) -> None:
        """End it."""
        self._server.stop(0).wait()


@pytest.fixture
def libtpu() -> Iterator[Libtpu]:
    """A server of libtpu's metrics, with four devices."""
    server = Libtpu()
    server.values = {
        far.USED: [1 * GIB, 2 * GIB, 3 * GIB, 4 * GIB],
        far.TOTAL: [32 * GIB] * 4,
        far.DUTY: [10.0, 20.0, 30.5, 99.0],
    }
    yield server
    server.stop()


def asked(port: int) -> WorkerUsage:
    """What a worker tells whose libtpu serves there."""
    return WorkerUsage.of(0, far.usage({"ports": [port]}, None))  # type: ignore[arg-type]  # it reads no stream


@pytest.mark.parametrize("named", ["int", "digits", "list"])
def test_hbm_and_duty_cycle_are_libtpus(libtpu: Libtpu, named: str) -> None:
    """Each device has the numbers that libtpu serves over gRPC, whichever way its releases name devices."""
    libtpu.named = named
    use = asked(libtpu.port)
    assert [each.hbm_used // GIB for each in use.devices] == [1, 2, 3, 4]
    assert use.hbm_total == 128 * GIB
    assert [each.duty_cycle for each in use.devices] == [10.0, 20.0, 30.5, 99.0]
    assert "HBM 10.0 of 128.0 GiB · duty cycle 40 %" in str(use)


def test_a_duty_cycle_per_chip_goes_to_both_its_devices(libtpu: Libtpu) -> None:
    """Where a chip is two devices, as on v2 and v3, both have their chip's duty cycle."""
    libtpu.values[far.DUTY] = [10.0, 90.0]
    assert [each.duty_cycle for each in asked(libtpu.port).devices] == [10.0, 10.0, 90.0, 90.0]


def test_a_metric_that_is_not_there_is_left_out(libtpu: Libtpu) -> None:
    """A libtpu that does not know the duty cycle still tells its memory."""
    del libtpu.values[far.DUTY]
    use = asked(libtpu.port)
    assert use.hbm_used == 10 * GIB
    assert use.duty_cycle is None


def test_nobody_there_is_no_tpu(unused_tcp_port: int) -> None:
    """Where no process holds the TPU nothing is served, and memory and processors are told all the same."""
    use = asked(unused_tcp_port)
    assert use.devices == ()
    assert 0 < use.memory < use.memory_total
    assert use.cpu_seconds > 0


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\xff" * 4096, b""])
def test_another_server_there_is_no_tpu(answer: bytes) -> None:
    """A server that is not libtpu's, at its port, is not believed and does not hang the worker."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        assert asked(server.getsockname()[1]).devices == ()
        thread.join()


def test_the_processors_share_is_that_since_the_look_before() -> None:
    """Percent of one processor between two looks; nothing at the first, nor after the machine started anew."""
    told = {"devices": [], "memory": 1, "memory_total": 2, "cpus": 8, "cpu_seconds": 10.0, "at": 100.0}
    first = WorkerUsage.of(0, told)
    assert first.cpu_percent is None
    assert WorkerUsage.of(0, told | {"cpu_seconds": 25.0, "at": 110.0}, first).cpu_percent == 150.0
    assert WorkerUsage.of(0, told | {"cpu_seconds": 1.0, "at": 3.0}, first).cpu_percent is None


def test_a_report_folds_and_names_the_silent() -> None:
    """Workers that say the same are one line; one that does not tell is named with the reason."""
    use = WorkerUsage(0, (), 10**9, 10**10, 1.0, 8, 1.0)
    report = UsageReport({0: use, 1: use}, {2: "the connection was lost"})
    assert str(report) == "[ranks 0-1] memory 1.0 GB\n[rank 2] does not tell: the connection was lost"
