"""Files to real workers over SSH, from worker to worker, and back."""

from __future__ import annotations

import ast
import os
import shutil
import stat
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import multislice_nb.cluster
from multislice_nb import errors
from multislice_nb._portal import sync
from multislice_nb.cluster.errand import errand
from multislice_nb.cluster.files import Files

if TYPE_CHECKING:
    from multislice_nb.cluster.reaching import Reach
    from multislice_nb.cluster.transfer import Transfer


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small project."""
    root = tmp_path / "project"
    (root / "package").mkdir(parents=True)
    (root / "package/model.py").write_text("WIDTH = 8\n")
    (root / "run.sh").write_text("#!/bin/sh\necho run\n")
    (root / "run.sh").chmod(0o755)
    (root / "notes.log").write_text("not for workers")
    (root / ".gitignore").write_text("*.log\n")
    return root


def files_under(folder: Path) -> dict[str, bytes]:
    """Every file under a folder, with its content."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def leftovers(home: Path) -> list[Path]:
    """What a push may not leave behind."""
    return [
        path for path in home.rglob("*") if "multislice_nb-" in path.name or path.name.startswith("bundle")
    ]


def test_a_folder_reaches_every_worker_and_is_sent_once(
    reached: Reach, homes: list[Path], project: Path
) -> None:
    """Four workers have the folder, ignored files apart, and this machine sent it to one of them."""
    looks: list[Transfer] = []
    result = reached.files.push(project, "pushed/once", on_update=looks.append)
    for home in homes:
        there = files_under(home / "pushed/once")
        assert set(there) == {"package/model.py", "run.sh", ".gitignore"}
        assert there["package/model.py"] == b"WIDTH = 8\n"
        assert stat.S_IMODE((home / "pushed/once/run.sh").stat().st_mode) == 0o755
        assert not leftovers(home)
    assert len(result.direct) == 1
    assert result.uplink_bytes == result.bundle_bytes
    assert result.sent == {0: 3, 1: 3, 2: 3, 3: 3}
    assert looks
    assert "1 x" in str(result)


def test_unchanged_is_not_sent(reached: Reach, homes: list[Path], project: Path) -> None:
    """A second push sends nothing; after a change on either side it sends that file alone, where it is missing."""
    reached.files.push(project, "pushed/twice")
    again = reached.files.push(project, "pushed/twice")
    assert again.unchanged
    assert again.uplink_bytes == 0
    assert "nothing sent" in str(again)
    (homes[2] / "pushed/twice/run.sh").write_text("somebody edited this")
    third = reached.files.push(project, "pushed/twice")
    assert third.sent == {0: 0, 1: 0, 2: 1, 3: 0}
    assert (homes[2] / "pushed/twice/run.sh").read_text() == "#!/bin/sh\necho run\n"


def test_what_the_workers_wrote_stays_unless_delete_is_asked(
    reached: Reach, homes: list[Path], project: Path
) -> None:
    """A push over results keeps them; with delete the destination becomes the source."""
    reached.files.push(project, "pushed/mirror")
    for home in homes:
        (home / "pushed/mirror/out").mkdir()
        (home / "pushed/mirror/out/loss.txt").write_text("0.1")
    assert reached.files.push(project, "pushed/mirror").unchanged
    assert (homes[3] / "pushed/mirror/out/loss.txt").exists()
    result = reached.files.push(project, "pushed/mirror", delete=True)
    assert result.removed == dict.fromkeys(range(4), ("out/loss.txt",))
    assert not (homes[3] / "pushed/mirror/out").exists()


def test_a_file_goes_into_a_folder_or_becomes_a_name(
    reached: Reach, homes: list[Path], project: Path
) -> None:
    """With / at its end the destination is a folder, without it the file's new name; a link keeps its own."""
    reached.files.push(project / "run.sh", "pushed/tools/", ranks="1-2")
    reached.files.push(project / "run.sh", "pushed/other.sh", ranks=[0])
    (project / "latest.sh").symlink_to("run.sh")
    reached.files.push(project / "latest.sh", "pushed/tools/", ranks=[3])
    assert (homes[3] / "pushed/tools/latest.sh").read_text() == (project / "run.sh").read_text()
    assert [(home / "pushed/tools/run.sh").exists() for home in homes] == [False, True, True, False]
    assert [(home / "pushed/other.sh").exists() for home in homes] == [True, False, False, False]


def test_a_failure_on_one_worker_changes_none(reached: Reach, homes: list[Path], project: Path) -> None:
    """A worker that cannot take it is named, and on all of them the destination is as it was."""
    reached.files.push(project, "pushed/whole")
    before = files_under(homes[0] / "pushed/whole")
    (project / "package/model.py").write_text("WIDTH = 16\n")
    (homes[3] / ".multislice_nb").mkdir(exist_ok=True)
    blocker = homes[3] / ".multislice_nb/incoming"
    if blocker.is_dir():
        blocker.rmdir()
    blocker.write_text("no folder can be made here")
    try:
        with pytest.raises(errors.ClusterError, match="Rank 3 could not") as caught:
            reached.files.push(project, "pushed/whole")
    finally:
        blocker.unlink()
    assert "slice 1, worker 1" in str(caught.value)
    for home in homes:
        assert files_under(home / "pushed/whole") == before
        assert not leftovers(home)


def test_workers_out_of_each_others_reach_are_sent_to_directly(
    reached: Reach, homes: list[Path], project: Path
) -> None:
    """Where the workers' own network is closed the notebook sends to each, and says so."""
    unreachable = [replace(worker, address="192.0.2.1") for worker in reached.workers]
    result = Files(reached.connections, unreachable).push(project, "pushed/direct")
    assert sorted(result.direct) == [0, 1, 2, 3]
    assert result.uplink_bytes == 4 * result.bundle_bytes
    assert all((home / "pushed/direct/run.sh").exists() for home in homes)


def test_a_bundle_is_given_only_for_its_token(reached: Reach, homes: list[Path]) -> None:
    """Who does not know the token gets nothing from a worker that gives to others."""
    from urllib.error import HTTPError
    from urllib.request import urlopen

    from multislice_nb.cluster.errand import opened

    (homes[0] / ".multislice_nb/incoming/feed").mkdir(parents=True)
    (homes[0] / ".multislice_nb/incoming/feed/bundle").write_bytes(b"content")
    worker = reached.workers[0]

    async def ask(paths: list[str]) -> list[bytes | int]:
        import asyncio

        def get(url: str) -> bytes | int:
            try:
                with urlopen(url, timeout=5) as answer:  # noqa: S310 - the URL is made here
                    content: bytes = answer.read()
                    return content
            except HTTPError as error:
                return error.code

        request = {"id": "feed", "address": worker.address, "token": "right"}
        async with opened(reached.connections, worker, "files:serve", request) as process:
            port = (await process.stdout.readline()).decode().strip()
            return [await asyncio.to_thread(get, f"http://{worker.address}:{port}/{path}") for path in paths]

    assert sync(ask, ["right", "wrong", "", "../bundle"]) == [b"content", 404, 404, 404]
    sync(errand, reached.connections, worker, "files:discard", {"id": "feed", "destination": "x"})


def test_a_pull_makes_a_folder_for_each_worker(reached: Reach, homes: list[Path], tmp_path: Path) -> None:
    """Files, folders and patterns come from every worker into a folder of its own; a second pull replaces them."""
    for rank, home in enumerate(homes):
        (home / "logs/deep").mkdir(parents=True, exist_ok=True)
        (home / "logs/deep/a.txt").write_text(f"rank {rank}")
        (home / "logs/b.txt").write_text("b")
    result = reached.files.pull("logs", tmp_path)
    names = [f"slice_{s:03d}_worker_{w:03d}" for s in (0, 1) for w in (0, 1)]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert [(tmp_path / name / "logs/deep/a.txt").read_text() for name in names] == [
        f"rank {r}" for r in range(4)
    ]
    assert result.files == dict.fromkeys(range(4), 2)
    for home in homes:
        (home / "logs/b.txt").unlink()
    reached.files.pull("logs", tmp_path)
    assert not (tmp_path / names[0] / "logs/b.txt").exists()
    reached.files.pull("logs/deep/*.txt", tmp_path / "some", ranks=[3])
    assert files_under(tmp_path / "some") == {f"{names[3]}/a.txt": b"rank 3"}
    (homes[3] / "logs/deeper").mkdir(exist_ok=True)
    (homes[3] / "logs/deeper/a.txt").write_text("of the same name")
    mine = tmp_path / "same" / names[3]
    for pattern in ("logs/*/a.txt", "logs/**"):
        reached.files.pull(pattern, tmp_path / "same", ranks=[3])
    same = {"deep/a.txt": b"rank 3", "deeper/a.txt": b"of the same name"}
    assert files_under(mine) == same | {f"logs/{name}": content for name, content in same.items()}
    # A folder in the place of a file, and a file in the place of a folder.
    shutil.rmtree(mine / "logs")
    (mine / "logs").write_text("an earlier pull's")
    (mine / "a.txt").mkdir()
    reached.files.pull("logs", tmp_path / "same", ranks=[3])
    reached.files.pull("logs/deep/a.txt", tmp_path / "same", ranks=[3])
    assert (mine / "logs/deep/a.txt").read_text() == (mine / "a.txt").read_text() == "rank 3"
    assert sorted(path.name for path in mine.iterdir()) == ["a.txt", "deep", "deeper", "logs"]
    with pytest.raises(errors.InvalidRequestError, match="cannot be made"):
        reached.files.pull("logs", mine / "a.txt", ranks=[3])


def test_a_pull_that_fails_somewhere_names_the_worker(
    reached: Reach, homes: list[Path], tmp_path: Path
) -> None:
    """What is missing on one worker is told by its name; what the others sent is kept."""
    for home in homes[:3]:
        (home / "only-some").write_text("here")
    with pytest.raises(errors.ClusterError, match="was not pulled from rank 3") as caught:
        reached.files.pull("only-some", tmp_path)
    assert "ranks 0-2" in caught.value.fix
    assert (tmp_path / "slice_000_worker_000/only-some").read_text() == "here"
    assert not list(tmp_path.rglob(".partial-*"))


def test_a_worker_cannot_write_outside_its_folder(reached: Reach, homes: list[Path], tmp_path: Path) -> None:
    """A link that leads out of what was pulled is left out and told."""
    (homes[1] / "trap").mkdir(exist_ok=True)
    (homes[1] / "trap/out").symlink_to("/etc")
    (homes[1] / "trap/fine").write_text("fine")
    result = reached.files.pull("trap", tmp_path, ranks=1)
    assert result.skipped == {1: ("trap/out",)}
    assert files_under(tmp_path) == {"slice_000_worker_001/trap/fine": b"fine"}
    assert "left out of rank 1" in str(result)


def test_memory_stays_bounded(reached: Reach, homes: list[Path], tmp_path: Path) -> None:
    """A file passes in pieces: this process grows by far less than what it sends and gets."""
    import psutil

    (tmp_path / "big").write_bytes(os.urandom(1 << 20) * 24)
    process, most, over = psutil.Process(), 0, threading.Event()
    before = process.memory_info().rss

    def watch() -> None:
        nonlocal most
        while not over.wait(0.02):
            most = max(most, process.memory_info().rss - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        reached.files.push(tmp_path / "big", "pushed/big", ranks=[0])
        reached.files.pull("pushed/big", tmp_path / "back", ranks=[0])
    finally:
        over.set()
        watcher.join()
    assert (tmp_path / "back/slice_000_worker_000/big").stat().st_size == 24 << 20
    assert most < 16 << 20


@pytest.mark.parametrize("destination", ["../up", "a/../../b"])
def test_a_destination_that_is_none_is_refused(reached: Reach, project: Path, destination: str) -> None:
    """A path that climbs is refused before anything is sent."""
    with pytest.raises(errors.InvalidRequestError, match="no destination"):
        reached.files.push(project, destination)


@pytest.mark.parametrize(
    "script", sorted((Path(multislice_nb.cluster.__file__).parent / "far").glob("*.py")), ids=str
)
def test_the_workers_side_is_python_3_8(script: Path) -> None:
    """TPU VM images come with Pythons older than ours: what runs there before anything is installed parses in 3.8."""
    ast.parse(script.read_text(), feature_version=(3, 8))
