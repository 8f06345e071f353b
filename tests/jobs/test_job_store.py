from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multislice_nb.errors import InvalidRequestError, StoreError
from multislice_nb.jobs.store import Store, inside


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
    """An uploaded file downloads with the same bytes, a large one too, which goes in parts."""
    for name, size in (("one", 1000), ("large", 2 << 20)):
        (tmp_path / name).write_bytes(b"\0\1\2" * size)
        store.upload(tmp_path / name, f"files/{name}")
        store.download(f"files/{name}", tmp_path / "new" / name)
        assert (tmp_path / "new" / name).read_bytes() == b"\0\1\2" * size


def test_the_first_creation_wins(store: Store) -> None:
    """Of many who create a document at once one is told that it did, and its content is there."""
    with ThreadPoolExecutor(16) as pool:
        made = list(pool.map(lambda n: store.create_json("end.json", {"by": n}), range(32)))
    assert made.count(True) == 1
    assert store.read_json("end.json") == {"by": made.index(True)}
    assert store.list() == ["end.json"]


def test_creating_what_exists_changes_nothing(store: Store) -> None:
    """The second one is told no; writing goes over it all the same."""
    assert store.create("once", b"first")
    assert not store.create("once", b"second")
    assert store.read("once") == b"first"
    store.write("once", b"third")
    assert store.read("once") == b"third"


def test_what_cannot_be_reached_is_told_with_its_place(tmp_path: Path, bucket: str) -> None:
    """A folder that is a file, a bucket that is not there, a target that cannot be: none ends in a traceback."""
    (tmp_path / "file").write_text("")
    for store in (Store(tmp_path / "file"), Store("gs://nowhere/jobs")):
        assert store.read("a/b") is None
        assert store.list("a") == []
        with pytest.raises(StoreError, match=f"{store.url}/a/b cannot be reached") as caught:
            store.write("a/b", b"")
        assert isinstance(caught.value, OSError)  # which workers take for a store that does not answer
        with pytest.raises(StoreError):
            store.create("a/b", b"")
    (tmp_path / "source").write_bytes(b"x")
    with pytest.raises(StoreError):
        Store(tmp_path / "file").upload(tmp_path / "source", "a")
    Store(f"{bucket}/there").write("a", b"")
    with pytest.raises(InvalidRequestError, match="cannot be made"):
        Store(f"{bucket}/there").download("a", tmp_path / "file" / "deep" / "a")
    assert [path.name for path in tmp_path.iterdir()] == ["file", "source"]


@pytest.mark.parametrize("url", ["s3://bucket/x", "memory://x", "gs://", "file://relative", "http://x/y"])
def test_what_is_no_store_is_refused(url: str) -> None:
    """Only buckets and folders are."""
    with pytest.raises(InvalidRequestError, match="no store"):
        Store(url)


@given(st.text(st.sampled_from("./a\\ "), max_size=12))
def test_no_name_leads_out_of_a_folder(name: str) -> None:
    """Object stores take any name; a download stays below its folder all the same."""
    folder = Path("/home/results")
    assert Path(os.path.normpath(inside(folder, name))).is_relative_to(folder)
