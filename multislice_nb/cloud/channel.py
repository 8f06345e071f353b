"""How the client library reaches the Cloud TPU API: Google's, or the emulator's on this machine.

One code path: the same asynchronous client, over another channel. Everything here is made on the background
loop, to which gRPC channels belong.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from multislice_nb.errors import ConfigurationError

if TYPE_CHECKING:
    import grpc

__all__ = ["Clients", "google_clients", "loopback_clients"]

_SCOPE = "https://www.googleapis.com/auth/cloud-platform"


@dataclass
class Clients:
    """The client library's clients of both API versions, and how to close them."""

    v2: Any
    v2alpha1: Any
    channels: list[Any] = field(default_factory=list, repr=False)

    async def close(self) -> None:
        """Close every channel; calling it again does nothing."""
        while self.channels:
            await self.channels.pop().close()


def loopback_clients(target: str, token: str) -> Clients:
    """Clients of a server on this machine, which wants a bearer token and no TLS.

    Args:
        target: As `127.0.0.1:12345`.
        token: Sent with every call.
    """
    import grpc
    from google.cloud import tpu_v2, tpu_v2alpha1
    from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcAsyncIOTransport
    from google.cloud.tpu_v2alpha1.services.tpu.transports import (
        TpuGrpcAsyncIOTransport as AlphaTransport,
    )

    channel = grpc.aio.insecure_channel(target, interceptors=[_bearer(token)])
    return Clients(
        v2=tpu_v2.TpuAsyncClient(transport=TpuGrpcAsyncIOTransport(channel=channel)),
        v2alpha1=tpu_v2alpha1.TpuAsyncClient(transport=AlphaTransport(channel=channel)),
        channels=[channel],
    )


async def google_clients(endpoint: str | None = None) -> Clients:
    """Clients of Google's service with the application default credentials.

    Args:
        endpoint: Another host of the service; Google's own when None.

    Raises:
        ConfigurationError: There are no credentials.
    """
    import google.auth
    from google.api_core.client_options import ClientOptions
    from google.auth.exceptions import DefaultCredentialsError
    from google.cloud import tpu_v2, tpu_v2alpha1

    try:
        # Looking for credentials may ask Compute Engine's metadata server, which blocks.
        credentials, _ = await asyncio.to_thread(google.auth.default, scopes=[_SCOPE])
    except DefaultCredentialsError as error:
        raise ConfigurationError(
            "No Google Cloud credentials were found on this machine.",
            fix="Log in: gcloud auth application-default login; or use the emulator: connect --emulator, or connect(emulator=True).",
        ) from error
    options = ClientOptions(api_endpoint=endpoint) if endpoint else None
    v2 = tpu_v2.TpuAsyncClient(credentials=credentials, client_options=options)
    alpha = tpu_v2alpha1.TpuAsyncClient(credentials=credentials, client_options=options)
    return Clients(v2=v2, v2alpha1=alpha, channels=[v2.transport, alpha.transport])


def _bearer(token: str) -> grpc.aio.UnaryUnaryClientInterceptor:
    import grpc

    class Bearer(grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[misc]
        """Adds the token to each call, as google-auth would."""

        async def intercept_unary_unary(self, continuation: Any, call: Any, request: Any) -> Any:
            metadata = grpc.aio.Metadata(*(call.metadata or ()))
            metadata.add("authorization", f"Bearer {token}")
            return await continuation(call._replace(metadata=metadata), request)

    return Bearer()
