"""The gRPC face: generic handlers for both versions of google.cloud.tpu, for operations and for locations."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.json_format import ParseDict
from google.rpc import error_details_pb2, status_pb2  # noqa: F401 - error details are found by their type's name

from multislice_nb.emulator.rpc import ApiError, Json
from multislice_nb.emulator.schema import message_class, methods, to_dict, to_message

if TYPE_CHECKING:
    from collections.abc import Callable

    from multislice_nb.emulator.credentials import Credentials
    from multislice_nb.emulator.engine import Engine
    from multislice_nb.emulator.tls import Tls

log = logging.getLogger(__name__)

# The unix socket of the TLS face is called as the plain one with this behind it.
TLS_SUFFIX = "-tls"
MAX_MESSAGE = 4 * 1024 * 1024
_SERVICES = {
    "google.cloud.tpu.v2.Tpu": "v2",
    "google.cloud.tpu.v2alpha1.Tpu": "v2alpha1",
    "google.longrunning.Operations": "v2",
    "google.cloud.location.Locations": "v2",
}
# Methods that answer with something else than METHODResponse.
_ANSWERS = {
    "GetNode": "Node",
    "GetQueuedResource": "QueuedResource",
    "GetAcceleratorType": "AcceleratorType",
    "GetRuntimeVersion": "RuntimeVersion",
    "GetLocation": "Location",
    "GetOperation": "Operation",
    "WaitOperation": "Operation",
    "CancelOperation": "Empty",
    "DeleteOperation": "Empty",
    "ListReservations": "ListReservationsResponse",
    "GetGuestAttributes": "GetGuestAttributesResponse",
    "GenerateServiceIdentity": "GenerateServiceIdentityResponse",
}


def _answer_name(method: str) -> str:
    if method in _ANSWERS:
        return _ANSWERS[method]
    return f"{method}Response" if method.startswith("List") else "Operation"


class Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Finds the handler of each call; a call without the token is refused before its bytes are read."""

    def __init__(self, engine: Engine, credentials: Credentials, active: Callable[[], None]) -> None:
        self._engine = engine
        self._credentials = credentials
        self._active = active

    def service(self, details: Any) -> Any:
        """The handler of a call, or None where there is no such method."""
        service, _, method = details.method.lstrip("/").partition("/")
        version = _SERVICES.get(service)
        if version is None:
            return None
        if not self._known(details.invocation_metadata or ()):
            return grpc.unary_unary_rpc_method_handler(_refuse_stranger)
        if method not in methods(version):
            return None
        request_class = message_class(version, f"{method}Request")
        self._active()

        async def call(request: Any, context: Any) -> Any:
            try:
                answer = await self._engine.call(method, to_dict(request), version)
                return to_message(version, _answer_name(method), answer)
            except ApiError as error:
                await _abort(context, error)
            except Exception:
                log.exception("%s", method)
                await _abort(context, ApiError("INTERNAL", "Internal error encountered."))

        return grpc.unary_unary_rpc_method_handler(
            call,
            request_deserializer=request_class.FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )

    def _known(self, metadata: Any) -> bool:
        given = [value for key, value in metadata if key == "authorization"]
        return any(self._credentials.accept(str(value)) for value in given)


async def _refuse_stranger(request: bytes, context: Any) -> None:  # noqa: ARG001 - gRPC's signature
    text = "Request had invalid authentication credentials. Expected the emulator's bearer token."
    await _abort(context, ApiError("UNAUTHENTICATED", text))


async def _abort(context: Any, error: ApiError) -> None:
    status: Json = error.as_status()
    packed = ParseDict(status, status_pb2.Status()).SerializeToString()
    code = next(code for code in grpc.StatusCode if code.value[0] == error.code)
    await context.abort(code, error.message, (("grpc-status-details-bin", packed),))


async def serve(
    engine: Engine, credentials: Credentials, active: Callable[[], None], path: str, tls: Tls
) -> Any:
    """Start the gRPC server on a unix socket, and one with TLS beside it, and return it."""
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", MAX_MESSAGE),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_metadata_size", 16 * 1024),
        ]
    )
    server.add_generic_rpc_handlers((Handlers(engine, credentials, active),))
    server.add_insecure_port(f"unix:{path}")
    pair = [(tls.private_key, tls.certificate)]
    server.add_secure_port(f"unix:{path}{TLS_SUFFIX}", grpc.ssl_server_credentials(pair))
    await server.start()
    return server
