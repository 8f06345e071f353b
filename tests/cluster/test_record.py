"""The record of a cell on a worker's disk, that disk full or not, and what reads it."""

from __future__ import annotations

import base64
import contextlib
import json
import pickle
import resource
import secrets
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from multislice_nb.cluster import reader, record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

REPLY = {"ok": True, "value": {"pickle": pickle.dumps(7)}, "started": 1.0, "finished": 2.0}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A worker's home folder, in which this process is the engine."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MULTISLICE_NB_FOLDER", str(tmp_path / "clusters"))
    return tmp_path


@contextlib.contextmanager
def full_disk(size: int) -> Iterator[None]:
    """No file grows beyond so many bytes, and who tries gets an OSError, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def printed(text: str) -> dict[str, Any]:
    """A message of output."""
    return {"type": "stream", "name": "stdout", "text": text}


def look(request: str, offset: int = 0) -> dict[str, Any]:
    """What the script finds that reads a record on its worker."""
    command = [sys.executable, "-", "clusters", "cells", request, str(offset)]
    done = subprocess.run(command, input=reader._READ, capture_output=True, text=True, check=True)
    seen: dict[str, Any] = json.loads(done.stdout)
    seen["output"] = [json.loads(line)["text"] for line in seen["output"].splitlines()]
    seen["reply"] = pickle.loads(base64.b64decode(seen["reply"])) if seen["reply"] else None  # noqa: S301 - written above
    return seen


def test_a_disk_that_fills_costs_output_and_no_reply(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What came before it was full is read, up to the last whole message, and how the cell ended; stderr tells."""
    cell = secrets.token_hex(8)
    assert record.begin(cell, "<cell 1>")
    record.write(printed("early"))
    with full_disk(record.RESERVED):
        assert record.write(printed("x" * 2 * record.RESERVED))
        assert record.write(printed("late"))
        record.end(cell, REPLY)
    assert (look(cell)["output"], look(cell)["reply"]) == (["early"], REPLY)
    assert "Not all of this is kept on the worker's disk" in capsys.readouterr().err
    assert not record.write(printed("after"))


def test_a_value_without_room_leaves_how_the_cell_ended(home: Path) -> None:
    """A reply that is too large for a full disk is kept without its value, which says why."""
    cell = secrets.token_hex(8)
    record.begin(cell, "<cell 1>")
    with full_disk(record.RESERVED):
        record.end(cell, REPLY | {"value": {"pickle": pickle.dumps("x" * 2 * record.RESERVED)}})
    reply = look(cell)["reply"]
    assert (reply["ok"], reply["finished"]) == (True, 2.0)
    assert "could not be kept on its worker" in reply["value"]["why"]


def test_a_disk_that_is_full_already_stops_no_cell(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a record a request runs all the same, and once."""
    cell = secrets.token_hex(8)
    with full_disk(0):
        assert record.begin(cell, "<cell 1>")
        assert record.write(printed("text"))
        assert not record.begin(cell, "<cell 1>")
        record.end(cell, REPLY)
        record.acknowledge(cell)
    assert not (home / "clusters/cells" / cell).exists()
    assert "Not all of this is kept on the worker's disk" in capsys.readouterr().err


def test_a_message_of_any_size_is_read(home: Path) -> None:
    """One that is larger than what a look takes at most comes whole, and the reply after it."""
    cell, large = secrets.token_hex(8), "x" * (5 << 20)
    record.begin(cell, "<cell 1>")
    record.write(printed(large))
    record.write(printed("after"))
    record.end(cell, REPLY)
    first = look(cell)
    assert (first["output"], first["reply"]) == ([large], None)
    assert look(cell, first["size"])["reply"] == REPLY
