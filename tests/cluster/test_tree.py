"""Folders as manifests: what is sent, and what stays here."""

from __future__ import annotations

import subprocess
import tarfile
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from multislice_nb import errors
from multislice_nb.cluster.tree import bundle, scan

if TYPE_CHECKING:
    from pathlib import Path


def names(folder: Path, **options: bool) -> set[str]:
    """Paths of what would be sent."""
    return {entry.path for entry in scan(folder, **options).entries}


def write(root: Path, *paths: str) -> None:
    """Make files, each with its own path as its content."""
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)


def test_gitignore_is_respected_as_git_does(tmp_path: Path) -> None:
    """What git would list as tracked or untracked is what is sent, nested and negated rules included."""
    write(
        tmp_path,
        "a.py",
        "run.log",
        "keep.log",
        "build/x",
        "sub/build/y",
        "sub/a.tmp",
        "sub/b.tmp",
        "data/big",
    )
    (tmp_path / ".gitignore").write_text("*.log\n!keep.log\n/build/\n*.tmp\n")
    (tmp_path / "sub/.gitignore").write_text("!b.tmp\n")
    (tmp_path / "data/.gitignore").write_text("*\n")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".git/info/exclude").write_text("sub/build\n")
    listed = subprocess.run(
        ["git", "-C", str(tmp_path), "ls-files", "--cached", "--others", "--exclude-standard"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert names(tmp_path) == set(listed.stdout.split())


def test_rules_above_the_folder_count(tmp_path: Path) -> None:
    """A folder of a repository obeys the .gitignore files above it, and none from outside the repository."""
    repository = tmp_path / "outside/repository"
    write(repository, "src/a.py", "src/a.pyc")
    (tmp_path / "outside/.gitignore").write_text("*.py\n")
    (repository / ".gitignore").write_text("*.pyc\n")
    (repository / ".git").mkdir()
    assert names(repository / "src") == {"a.py"}
    assert names(repository / "src", gitignore=False) == {"a.py", "a.pyc"}


def test_caches_and_the_repository_itself_stay(tmp_path: Path) -> None:
    """No worker gets .git, byte code or notebook checkpoints, whatever the rules say."""
    write(tmp_path, "a.py", ".git/config", "p/__pycache__/a.pyc", ".ipynb_checkpoints/n.ipynb")
    assert names(tmp_path, gitignore=False) == {"a.py"}


def test_links_inside_are_kept_and_others_never_leak(tmp_path: Path) -> None:
    """A link within the folder stays one, a link to a file outside becomes that file, the rest is told."""
    root = tmp_path / "root"
    write(root, "a.py")
    write(tmp_path, "outside.txt", "folder/secret")
    (root / "inside").symlink_to("a.py")
    (root / "copied").symlink_to("../outside.txt")
    (root / "dangling").symlink_to("nothing")
    (root / "here").symlink_to("there")
    (root / "there").symlink_to("here")
    (root / "elsewhere").symlink_to(tmp_path / "folder")
    tree = scan(root)
    kinds = {entry.path: entry.kind for entry in tree.entries}
    assert kinds == {"a.py": "f", "inside": "l", "copied": "f"}
    assert tree.skipped == ("dangling", "elsewhere", "here", "there")


def test_the_digest_says_whether_anything_changed(tmp_path: Path) -> None:
    """Content, names and modes are in the digest; times are not."""
    write(tmp_path, "a.py")
    first = scan(tmp_path).digest
    (tmp_path / "a.py").write_text("a.py")
    assert scan(tmp_path).digest == first
    (tmp_path / "a.py").chmod(0o700)
    assert scan(tmp_path).digest != first


def test_a_source_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """A wrong path is told before anything is sent."""
    with pytest.raises(errors.InvalidRequestError, match="nothing cannot be read"):
        scan(tmp_path / "nothing")


def test_a_file_that_shrinks_while_it_is_read_is_told(tmp_path: Path) -> None:
    """A bundle is never made of half a file."""
    write(tmp_path, "a.bin")
    tree = scan(tmp_path)
    (tmp_path / "a.bin").write_text("")
    with pytest.raises(errors.InvalidRequestError, match="changed while it was being read"):
        bundle(tree, {tree.entries[0].content})


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(contents=st.lists(st.binary(max_size=200), min_size=1, max_size=8))
def test_a_bundle_holds_each_content_once(
    tmp_path_factory: pytest.TempPathFactory, contents: list[bytes]
) -> None:
    """What is sent is every wanted content, whole, and none of it twice."""
    root = tmp_path_factory.mktemp("tree")
    for number, content in enumerate(contents):
        (root / str(number)).write_bytes(content)
    tree = scan(root)
    packed = bundle(tree, {entry.content for entry in tree.entries})
    packed.file.seek(0)
    with tarfile.open(fileobj=packed.file, mode="r:gz") as archive:
        found = [archive.extractfile(member) for member in archive.getmembers()]
        read = [file.read() for file in found if file is not None]
    packed.close()
    assert sorted(read) == sorted(set(contents))
