"""A local server of Cloud Storage for tests."""

from __future__ import annotations

import contextlib
import io
import logging
import socket
import sys
import threading
from functools import partial
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def serving(bucket: str = "bucket") -> Iterator[str]:
    """A bucket on a server of its own, which this process and all it starts take for Cloud Storage."""
    server = pytest.importorskip("gcp_storage_emulator.server")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    made = server.create_server("127.0.0.1", port, in_memory=True, default_bucket=bucket)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{port}")
        patch.setenv("TENSORSTORE_GCS_HTTP_URL", f"http://127.0.0.1:{port}")
        patch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
        _read_apart(server, made, port, patch)
        _know_preconditions(server, patch)
        # After every upload it writes down all it has, for its next start, which takes longer and longer.
        patch.setattr(server.Storage, "_write_config_to_file", lambda _: None)
        # It logs as an error whatever is asked for and is not there, which is what a gang does all the time.
        patch.setattr(logging.getLogger("gcp_storage_emulator.storage"), "disabled", value=True)
        made.start()
        try:
            yield f"gs://{bucket}"
        finally:
            made.stop()


def _read_apart(server: Any, made: Any, port: int, patch: pytest.MonkeyPatch) -> None:
    """Have each connection read by itself, and what was read whole served one after the other.

    The server reads from one connection at a time: a worker that is stopped in the middle of a request stops everybody.
    """
    turn = threading.Lock()
    handle = server.Router.handle

    def in_turn(router: Any, method: str) -> None:
        with turn:
            handle(router, method)

    class Handler(server.RequestHandler):  # type: ignore[misc]
        """Reads a request whole before it is its turn."""

        def parse_request(self) -> bool:
            """Read its head, and what follows that."""
            parsed = bool(super().parse_request())
            if parsed and self.headers.get("Content-Length"):
                self.rfile: Any = io.BytesIO(self.rfile.read(int(self.headers["Content-Length"])))
            return parsed

    class Server(ThreadingHTTPServer):
        """Lets as many wait at its door as a gang has connections: each request is one."""

        request_queue_size = 128

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Tell of what goes wrong, but not of a worker that was lost in the middle of an answer."""
            if not isinstance(sys.exception(), ConnectionError):
                super().handle_error(request, client_address)

    class Thread(server.APIThread):  # type: ignore[misc]
        """Serves each connection in a thread of its own."""

        def run(self) -> None:
            """Serve until it is stopped."""
            self._httpd = Server(("127.0.0.1", port), partial(Handler, made._storage))
            self.is_running.set()
            self._httpd.serve_forever()

    patch.setattr(server.Router, "handle", in_turn)
    made._api = Thread("127.0.0.1", port, made._storage)


def _know_preconditions(server: Any, patch: pytest.MonkeyPatch) -> None:
    """Teach the server the one rule of Cloud Storage that it lacks: generation nought means "not yet there".

    It serves one request at a time, so that nobody comes between the look and the upload.
    """
    insert = server.objects.insert

    def checked(request: Any, response: Any, storage: Any) -> None:
        if request.query.get("ifGenerationMatch") == ["0"]:
            name = request.query.get("name", [None])[0] or request.data["meta"]["name"]
            if name in storage.objects.get(request.params["bucket_name"], {}):
                response.status = HTTPStatus.PRECONDITION_FAILED
                response.json({"error": {"code": 412, "message": "conditionNotMet"}})
                return
        insert(request, response, storage)

    for _, methods in server.HANDLERS:
        if methods.get("POST") is insert:
            patch.setitem(methods, "POST", checked)
