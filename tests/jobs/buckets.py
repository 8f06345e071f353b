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
    from collections.abc import Callable, Iterator


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
        _know_generations(server, patch)
        # After every upload it writes down all it has, for its next start, which takes longer and longer.
        patch.setattr(server.Storage, "_write_config_to_file", lambda _: None)
        # It logs as an error whatever is asked for and is not there, which is what a gang does all the time.
        patch.setattr(logging.getLogger("gcp_storage_emulator.storage"), "disabled", value=True)
        made.start()
        try:
            yield f"gs://{bucket}"
        finally:
            made.stop()


@contextlib.contextmanager
def refusing(part: str) -> Iterator[None]:
    """Every upload to a name with this in it is forbidden."""
    server = pytest.importorskip("gcp_storage_emulator.server")
    handle = server.Router.handle

    def refused(router: Any, method: str) -> None:
        request = router._request_handler
        if method == "POST" and part in request.path:
            request.send_error(HTTPStatus.FORBIDDEN, "storage.objects.create is missing")
        else:
            handle(router, method)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server.Router, "handle", refused)
        yield


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


def _know_generations(server: Any, patch: pytest.MonkeyPatch) -> None:
    """Teach the server what it lacks of Cloud Storage: the generation of what is read, and conditions on generations.

    Checkpoints are written under such conditions: https://cloud.google.com/storage/docs/request-preconditions.
    The server serves one request at a time, so that nobody comes between the look and what is done then.
    """
    objects = server.objects
    names = {objects.insert: _uploaded, objects.get: _named, objects.download: _named, objects.delete: _named}
    for _, methods in server.HANDLERS:
        for method, do in list(methods.items()):
            if do in names:
                patch.setitem(methods, method, partial(_conditional, do, names[do]))


def _conditional(do: Any, name: Callable[[Any], str], request: Any, response: Any, storage: Any) -> None:
    there = storage.objects.get(request.params["bucket_name"], {}).get(name(request), {})
    generation = there.get("generation", "0")
    wanted, known = (request.query.get(f"ifGeneration{rule}", [""])[0] for rule in ("Match", "NotMatch"))
    if wanted not in {"", generation}:
        response.status = HTTPStatus.PRECONDITION_FAILED
        response.json({"error": {"code": 412, "message": "conditionNotMet"}})
    elif there and known == generation:
        response.status = HTTPStatus.NOT_MODIFIED
    else:
        if there:
            response["x-goog-generation"] = generation
        do(request, response, storage)


def _uploaded(request: Any) -> str:
    return str(request.query.get("name", [None])[0] or request.data["meta"]["name"])


def _named(request: Any) -> str:
    return str(request.params["object_id"])
