from __future__ import annotations

import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multislice_nb.jobs import layout, shipping
from multislice_nb.jobs.error_lines import ERRORS
from multislice_nb.jobs.logs import read_logs, search_logs
from multislice_nb.jobs.record import JobSpec
from multislice_nb.jobs.shipping import Shipper, ship_rest
from multislice_nb.jobs.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FLOOD = "for n in range(200_000): print(f'{n:050d}')"
SPEC = JobSpec(name="logs", command="x", accelerator_type="v4-8", node_count=2)


def shipped(store: Store, path: Path, rank: int = 0, **options: object) -> Shipper:
    """Ship a log of the first attempt."""
    return Shipper(path, store, layout.log_folder(rank, 1), 0.05, **options)  # type: ignore[arg-type]


def test_a_flood_of_lines_arrives_whole(tmp_path: Path) -> None:
    """Lines written as fast as Python prints arrive without a gap and in order."""
    path, store = tmp_path / "out.log", Store(tmp_path / "store")
    shipper = shipped(store, path)
    with path.open("wb") as output:
        subprocess.run([sys.executable, "-c", FLOOD], stdout=output, check=True)
    assert shipper.close(60.0)
    assert len(store.walk(layout.log_folder(0, 1))) == 6  # three parts of 4 MiB, and their times
    for expected, line in enumerate(read_logs(store, SPEC, ranks=[0])):
        assert line.text == f"{expected:050d}"
    assert expected == 199_999


def test_lines_of_workers_are_in_order_of_time(tmp_path: Path) -> None:
    """What two workers said by turns is read by turns."""
    store = Store(tmp_path / "store")
    files = [(tmp_path / str(rank)).open("w") for rank in range(2)]
    shippers = [shipped(store, tmp_path / str(rank), rank) for rank in range(2)]
    for turn in range(3):
        for rank in range(2):
            files[rank].write(f"{turn}.{rank}\n")
            files[rank].flush()
            limit = time.monotonic() + 10
            while shippers[rank]._seen < 4 * (turn + 1):
                assert time.monotonic() < limit
                time.sleep(0.01)
    for file, shipper in zip(files, shippers, strict=True):
        file.close()
        assert shipper.close(10.0)
    assert [line.text for line in read_logs(store, SPEC)] == ["0.0", "0.1", "1.0", "1.1", "2.0", "2.1"]
    assert [line.rank for line in search_logs(store, SPEC, r"^1\.")] == [0, 1]


def test_following_goes_on_until_the_end(tmp_path: Path) -> None:
    """A follower gets lines as they come, and the last one though it has no end of line."""
    path, store = tmp_path / "out.log", Store(tmp_path / "store")
    shipper = shipped(store, path)
    ended = False
    lines: Iterator[object] = iter(
        line.text for line in read_logs(store, SPEC, ranks=[0], follow=True, ended=lambda: ended, pause=0.01)
    )
    with path.open("w") as output:
        output.write("first\nsec")
        output.flush()
        assert next(lines) == "first"
        output.write("ond\nlast")
        output.flush()
        assert next(lines) == "second"
    assert shipper.close(10.0)
    ended = True
    assert list(lines) == ["last"]


def test_secrets_are_masked_also_across_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret that lies on the edge of two parts is in neither."""
    monkeypatch.setattr(shipping, "PART", 64)
    path, store = tmp_path / "out.log", Store(tmp_path / "store")
    path.write_bytes(b"x" * 60 + b"hunter22" + b"y" * 60 + b"hunter22\n")
    assert shipped(store, path, masks=("hunter22",)).close(10.0)
    parts = [name for name in store.walk(layout.log_folder(0, 1)) if name.endswith(".log")]
    content = b"".join(store.read(f"{layout.log_folder(0, 1)}/{name}") or b"" for name in parts)
    assert content == b"x" * 60 + b"*" * 8 + b"y" * 60 + b"*" * 8 + b"\n"


def test_what_a_machine_left_on_its_disk_is_shipped_after_its_reboot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last words before a reset arrive, in their place and without secrets; what is there is left alone."""
    monkeypatch.setattr(shipping, "PART", 16)
    monkeypatch.setattr("multislice_nb.jobs.logs.PART", 16)
    path, store, folder = tmp_path / "out.log", Store(tmp_path / "store"), layout.log_folder(0, 1)
    path.write_text("first\nsecond\n")
    assert shipped(store, path).close(10.0)
    with path.open("a") as output:
        output.write("third hunter22\nlast\n")
    assert ship_rest(path, store, folder, masks=("hunter22",)) == 20
    assert ship_rest(path, store, folder, masks=("hunter22",)) == 0
    lines = [line.text for line in read_logs(store, SPEC, ranks=[0])]
    assert lines == ["first", "second", "third ********", "last"]


def test_the_first_error_is_noticed_while_it_is_written(tmp_path: Path) -> None:
    """The line that looks like an error is kept with its time, and without secrets."""
    path = tmp_path / "out.log"
    path.write_text("fine\nRuntimeError is a word\nValueError: bad shard hunter22\n")
    before = time.time()
    shipper = shipped(Store(tmp_path / "store"), path, masks=("hunter22",))
    assert shipper.close(10.0)
    assert shipper.first_error is not None
    assert shipper.first_error[1] == "ValueError: bad shard ********"
    assert shipper.first_error[0] >= before


@pytest.mark.parametrize(
    "line",
    [
        "MemoryError",
        "jaxlib.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "Fatal Python error: Segmentation fault",
        "F0000 00:00:1 client.h:80] Check failed: ok",
    ],
)
def test_what_ends_a_command_is_found_behind_the_head_of_its_traceback(tmp_path: Path, line: str) -> None:
    """The head alone is told until more is there, as Python writes line by line; the time stays that of the head."""
    path = tmp_path / "out.log"
    path.write_text("RuntimeError is a word\nTraceback (most recent call last):\n")
    shipper = shipped(Store(tmp_path / "store"), path)
    shipper.look()
    head = shipper.first_error
    assert head is not None
    assert head[1] == "Traceback (most recent call last):"
    with path.open("a") as output:
        output.write(f"  File x\n{line}\nKeyError: later\n")
    assert shipper.close(10.0)
    assert shipper.first_error == (head[0], line)
    assert re.search(ERRORS, line)


@settings(max_examples=30)
@given(st.lists(st.text(st.characters(exclude_characters="\n\r", codec="utf-8"), max_size=40), max_size=30))
def test_any_text_survives_any_cut(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    """Lines are read as they were written wherever the parts' edges fall, inside characters too."""
    root = tmp_path_factory.mktemp("cut")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shipping, "PART", 7)
        patch.setattr("multislice_nb.jobs.logs.PART", 7)
        (root / "log").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        store = Store(root / "store")
        assert Shipper(root / "log", store, layout.log_folder(0, 1), 0.01).close(10.0)
        assert [line.text for line in read_logs(store, SPEC, ranks=[0])] == texts
