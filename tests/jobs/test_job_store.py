from __future__ import annotations

import json
import re
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest

from multislice_nb.errors import InvalidRequestError
from multislice_nb.jobs.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """A bucket of a Cloud Storage emulator of this module's own."""
    server = pytest.importorskip("gcp_storage_emulator.server")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    emulator = server.create_server("127.0.0.1", port, in_memory=True, default_bucket="bucket")
    emulator.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{port}")
        yield "gs://bucket"
    emulator.stop()


@pytest.fixture(params=["file", "gs"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty store in a folder and in a bucket."""
    if request.param == "file":
        return Store(tmp_path / "store")
    name = request.node.name.replace("[", "-").replace("]", "")
    return Store(f"{request.getfixturevalue('bucket')}/{name}")


def test_what_was_written_is_read(store: Store) -> None:
    """Whole objects, parts of them, and documents come back; what is not there is None."""
    store.write("a/b.bin", b"0123456789")
    assert store.read("a/b.bin") == b"0123456789"
    assert store.read("a/b.bin", start=7) == b"789"
    assert store.read("a/c.bin") is None
    store.write_json("a/d.json", {"x": [1, 2]})
    assert store.read_json("a/d.json") == {"x": [1, 2]}
    assert store.read_json("nowhere.json") is None


def test_reading_behind_the_end_gives_nothing(store: Store) -> None:
    """A follower that is up to date reads no bytes, and no error."""
    store.write("log", b"abc")
    assert not store.read("log", start=3)


def test_listing_sees_what_others_wrote(store: Store) -> None:
    """Names of a folder are fresh at every call, sorted, and empty where there is no folder."""
    assert store.list("f") == []
    store.write("f/b", b"")
    other = Store(store.url)
    other.write("f/a", b"xy")
    other.write("f/sub/c", b"xyz")
    assert store.list("f") == ["a", "b", "sub"]
    assert store.walk("f") == {"a": 2, "b": 0, "sub/c": 3}


def test_a_child_is_the_same_tree(store: Store) -> None:
    """A folder of a store is a store."""
    store.child("x", "y").write("z", b"1")
    assert store.read("x/y/z") == b"1"


def test_removing_takes_all_that_is_below(store: Store) -> None:
    """And removing what is not there is no error."""
    store.write("gone/a", b"")
    store.write("gone/b/c", b"")
    store.remove("gone")
    assert store.walk("gone") == {}
    store.remove("gone")


def test_files_go_up_and_down(store: Store, tmp_path: Path) -> None:
    """An uploaded file downloads with the same bytes."""
    (tmp_path / "up").write_bytes(b"\0\1\2" * 1000)
    store.upload(tmp_path / "up", "files/one")
    store.download("files/one", tmp_path / "new" / "down")
    assert (tmp_path / "new" / "down").read_bytes() == b"\0\1\2" * 1000


def test_the_first_creation_wins(tmp_path: Path) -> None:
    """Of many who create a document at once one is told that it did, and its content is there."""
    store = Store(tmp_path)
    with ThreadPoolExecutor(16) as pool:
        made = list(pool.map(lambda n: store.create_json("end.json", {"by": n}), range(64)))
    assert made.count(True) == 1
    assert store.read_json("end.json") == {"by": made.index(True)}
    assert store.list() == ["end.json"]


def test_creating_what_exists_changes_nothing(tmp_path: Path) -> None:
    """The second one is told no."""
    store = Store(tmp_path)
    assert store.create("once", b"first")
    assert not store.create("once", b"second")
    assert store.read("once") == b"first"


class CloudStorage(BaseHTTPRequestHandler):
    """Cloud Storage's upload call with its precondition, which the emulator does not know."""

    objects: ClassVar[dict[str, bytes]] = {}

    def do_POST(self) -> None:
        """Take an upload, or refuse it."""
        query = parse_qs(urlsplit(self.path).query)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        name = re.search(rb'"name": "([^"]+)"', body)
        assert name is not None
        key = name[1].decode()
        taken = query.get("ifGenerationMatch") == ["0"] and key in self.objects
        if not taken:
            self.objects[key] = body
        answer = {"error": {"code": 412, "message": "conditionNotMet"}} if taken else {"name": key}
        content = json.dumps(answer).encode()
        self.send_response(412 if taken else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_creating_in_a_bucket_asks_for_generation_nought(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bucket itself decides who was first, and its 412 is a plain no."""
    with ThreadingHTTPServer(("127.0.0.1", 0), CloudStorage) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{server.server_port}")
        store = Store("gs://contract/here")
        assert store.create("once", b"first")
        assert not store.create("once", b"second")
        store.write("once", b"third")
        server.shutdown()
    assert b"third" in CloudStorage.objects["here/once"]


@pytest.mark.parametrize("url", ["s3://bucket/x", "gs://", "file://relative", "http://x/y"])
def test_what_is_no_store_is_refused(url: str) -> None:
    """Only buckets and folders are."""
    with pytest.raises(InvalidRequestError, match="no store"):
        Store(url)
