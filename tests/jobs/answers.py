"""What a worker asks of Google, answered on this machine: its place, its token, its secrets, and its deletion."""

from __future__ import annotations

import contextlib
import json
import threading
from base64 import b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET = "hunter2-is-a-long-secret"
VERSION = "projects/p/secrets/token/versions/1"
INSTANCE = "/computeMetadata/v1/instance"
TPU_ENV = "WORKER_ID: '1'\nMEGASCALE_SLICE_ID: '2'\n"


class Google(ThreadingHTTPServer):
    """Answers those who bring a token.

    Attributes:
        refusals: Statuses with which the next ones who ask for a secret, or a reset, are refused.
        deleted: What was to be deleted.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.refusals: list[int] = []
        self.deleted: list[str] = []

    @property
    def host(self) -> str:
        """Its address and port."""
        return f"127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Google

    def do_GET(self) -> None:
        """Hand out what there is."""
        if self.path == f"{INSTANCE}/service-accounts/default/token":
            self._answer(200, {"access_token": "t"})
        elif self.path == f"{INSTANCE}/attributes/tpu-env":
            self._send(200, TPU_ENV)
        elif self.path != f"/v1/{VERSION}:access":
            self._answer(404, {})
        elif not self.headers["Authorization"].startswith("Bearer "):
            self._answer(403, {})
        elif self.server.refusals:
            self._answer(self.server.refusals.pop(0), {})
        else:
            self._answer(200, {"payload": {"data": b64encode(SECRET.encode()).decode()}})

    def do_POST(self) -> None:
        """Accept whatever is to be done."""
        self._answer(self.server.refusals.pop(0) if self.server.refusals else 200, {})

    def do_DELETE(self) -> None:
        """Note what is to go."""
        self.server.deleted.append(self.path)
        self._answer(200, {})

    def _answer(self, status: int, document: object) -> None:
        self._send(status, json.dumps(document))

    def _send(self, status: int, text: str) -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def answering() -> Iterator[Google]:
    """A server of one's own."""
    with Google() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
