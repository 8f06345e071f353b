"""The worker's side of looking at how much of it is used: HBM and duty cycle of its TPU, memory and processors.

libtpu serves the TPU's numbers over gRPC on a loopback port of the process that holds the TPU, which is how
tpu-info reads them. An errand has Python's standard library and nothing else, so the few calls are spoken here:
HTTP/2 without TLS (RFC 9113), headers as HPACK literals (RFC 7541), messages as protobuf. A cell that keeps the
engine busy does not keep this from being told.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    Request = dict[str, Any]

PROC = Path("/proc")
MARK = "MULTISLICE_NB_EMULATED_VM"
SERVICE = "/tpu.monitoring.runtime.RuntimeMetricService/GetRuntimeMetric"
USED = "tpu.runtime.hbm.memory.usage.bytes"
TOTAL = "tpu.runtime.hbm.memory.total.bytes"
DUTY = "tpu.runtime.tensorcore.dutycycle.percent"
PORTS = "TPU_RUNTIME_METRICS_PORTS"
"""Where libtpu was told to serve its metrics, when not on its own port."""
PATIENCE = 3.0
"""Seconds for libtpu to answer."""

_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY = 0, 1, 3, 4, 6, 7
_END_STREAM, _END_HEADERS, _PADDED, _ACK = 1, 4, 8, 1
_LARGEST_FRAME = 1 << 20


def usage(request: Request, _stream: IO[bytes]) -> dict[str, Any]:
    """What is used now; the TPU's part is empty where libtpu serves nothing."""
    named = os.environ.get(PORTS, "")
    ports = [int(port) for port in named.split(",") if port.strip().isdigit()] or request["ports"]
    devices: list[dict[str, Any]] = []
    for port in ports:
        with contextlib.suppress(OSError, ValueError, struct.error):  # nobody serves there, or something else
            devices += _devices(_ask(port, (USED, TOTAL, DUTY)))
    return {"devices": devices, "at": time.monotonic(), "cpus": os.cpu_count() or 1, **_host()}


def _devices(told: dict[str, bytes]) -> list[dict[str, Any]]:
    used, total, duty = (_gauges(told[name]) for name in (USED, TOTAL, DUTY))
    # Memory is told per device and the duty cycle per chip, of which v2 and v3 have half as many.
    return [
        {
            "device": device,
            "used": int(amount),
            "total": int(dict(total).get(device, 0)),
            "duty": duty[number * len(duty) // len(used)][1] if duty else None,
        }
        for number, (device, amount) in enumerate(used)
    ]


def _ask(port: int, names: tuple[str, ...]) -> dict[str, bytes]:
    """What libtpu answers for each metric, as protobuf; nothing for one that it does not have."""
    limit = time.monotonic() + PATIENCE
    with socket.create_connection(("localhost", port), timeout=PATIENCE) as connection:
        sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(_SETTINGS, 0, 0)
        streams = {2 * number + 1: name for number, name in enumerate(names)}
        for stream, name in streams.items():
            text = name.encode()
            message = bytes((0x0A, len(text))) + text
            sent += _frame(_HEADERS, _END_HEADERS, stream, _head(port))
            sent += _frame(_DATA, _END_STREAM, stream, struct.pack(">xI", len(message)) + message)
        connection.sendall(sent)
        bodies = dict.fromkeys(streams, b"")
        left = set(streams)
        with connection.makefile("rb") as incoming:
            while left:
                if time.monotonic() > limit:
                    raise TimeoutError("libtpu took too long")
                kind, flags, stream, payload = _next(incoming)
                if kind in {_SETTINGS, _PING} and not flags & _ACK:
                    connection.sendall(_frame(kind, _ACK, 0, payload if kind == _PING else b""))
                elif kind == _GOAWAY:
                    raise ConnectionError("libtpu refused")
                elif kind == _DATA:
                    bodies[stream] += payload[1 : -payload[0] or None] if flags & _PADDED else payload
                if kind == _RESET or (kind in {_DATA, _HEADERS} and flags & _END_STREAM):
                    left.discard(stream)
    return {name: bodies[stream][5:] for stream, name in streams.items()}


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _next(incoming: IO[bytes]) -> tuple[int, int, int, bytes]:
    head = incoming.read(9)
    if len(head) < 9:
        raise ConnectionError("it ended early")
    size = int.from_bytes(head[:3], "big")
    if size > _LARGEST_FRAME:
        raise ValueError("that is no HTTP/2")
    kind, flags, stream = struct.unpack(">BBI", head[3:])
    return kind, flags, stream & 0x7FFFFFFF, incoming.read(size)


def _head(port: int) -> bytes:
    """The request's headers; the numbers are HPACK's for names and pairs that it knows."""

    def text(value: str) -> bytes:
        return bytes((len(value),)) + value.encode()

    return b"".join(
        (
            b"\x83\x86",  # :method POST, :scheme http
            b"\x04" + text(SERVICE),  # :path
            b"\x01" + text(f"localhost:{port}"),  # :authority
            b"\x0f\x10" + text("application/grpc"),  # content-type
            b"\x00" + text("te") + text("trailers"),
        )
    )


def _gauges(response: bytes) -> list[tuple[int, float]]:
    """Pairs of a device and its number, by device: MetricResponse.metric.metrics, each an attribute and a gauge."""
    found: list[tuple[int, float]] = []
    for metric in _all(b"".join(_all(response, 1)), 3):
        device = _number(b"".join(_all(metric, 1)))
        for number, value in _fields(b"".join(_all(metric, 3))):
            if number in {1, 2}:  # as_double, as_int
                amount = value if isinstance(value, int) else struct.unpack("<d", value)[0]
                found.append((len(found) if device is None else device, float(amount)))
    return sorted(found)


def _number(attribute: bytes) -> int | None:
    """The device that an attribute names: as a number, as digits, or as the first of several attributes."""
    for value in _all(attribute, 2):
        for number, inner in _fields(value):
            if number == 3 and isinstance(inner, int):
                return inner
            if number == 1 and isinstance(inner, bytes) and inner.isdigit():
                return int(inner)
            if number == 6 and isinstance(inner, bytes):
                known = (_number(each) for each in _all(inner, 1))
                return next((device for device in known if device is not None), None)
    return None


def _all(message: bytes, wanted: int) -> list[bytes]:
    return [value for number, value in _fields(message) if number == wanted and isinstance(value, bytes)]


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protobuf message: integers as such, all else as bytes."""
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        kind = tag & 7
        if kind == 0:
            value, place = _varint(message, place)
            yield tag >> 3, value
            continue
        if kind == 2:
            size, place = _varint(message, place)
        elif kind in {1, 5}:
            size = 8 if kind == 1 else 4
        else:
            raise ValueError("that is no protobuf message")
        yield tag >> 3, message[place : place + size]
        place += size


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if place >= len(message) or shift > 63:
            raise ValueError("that is no protobuf message")
        byte = message[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place


def _host() -> dict[str, Any]:
    """Memory in bytes and processor time in seconds: of the machine, or of an emulated one's processes."""
    memory = _meminfo()
    total = memory.get("MemTotal", 0)
    if MARK in os.environ:
        used, seconds = _of_processes(os.environb[MARK.encode()])
    else:
        used, seconds = total - memory.get("MemAvailable", total), _of_machine()
    return {"memory": used, "memory_total": total, "cpu_seconds": seconds}


def _meminfo() -> dict[str, int]:
    with contextlib.suppress(OSError):
        lines = [line.split() for line in (PROC / "meminfo").read_text().splitlines()]
        return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if len(words) > 1}
    return {}


def _of_machine() -> float:
    with contextlib.suppress(OSError):
        numbers = [int(word) for word in (PROC / "stat").read_text().splitlines()[0].split()[1:]]
        return (sum(numbers[:3]) + sum(numbers[5:8])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def _of_processes(mark: bytes) -> tuple[int, float]:
    """Of the processes that carry an emulated machine's mark, this one left out."""
    wanted = MARK.encode() + b"=" + mark
    memory, ticks = 0, 0
    for path in PROC.iterdir() if PROC.is_dir() else ():
        if not path.name.isdigit() or int(path.name) == os.getpid():
            continue
        with contextlib.suppress(OSError, IndexError, ValueError):  # it has ended, or is somebody else's
            if wanted in (path / "environ").read_bytes().split(b"\0"):
                words = (path / "stat").read_text().rpartition(")")[2].split()
                memory += int((path / "statm").read_text().split()[1])
                ticks += int(words[11]) + int(words[12])
    return memory * os.sysconf("SC_PAGE_SIZE"), ticks / os.sysconf("SC_CLK_TCK")
