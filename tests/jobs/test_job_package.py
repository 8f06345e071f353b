from __future__ import annotations

import os
import subprocess
import tarfile
from io import BytesIO
from typing import TYPE_CHECKING

import pytest

from multislice_nb.errors import InvalidRequestError
from multislice_nb.jobs.package import pack

if TYPE_CHECKING:
    from pathlib import Path


def write(root: Path, **files: str) -> None:
    """Write files whose names are spelt as identifiers."""
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A folder with .gitignore files on two levels."""
    root = tmp_path / "code"
    write(
        root,
        train_dot_py="print()",
        data__big_dot_bin="x",
        data__keep_dot_txt="x",
        pkg__mod_dot_py="x",
        pkg__debug_dot_log="x",
        pkg__important_dot_log="x",
        build__out_dot_o="x",
        pkg__build__sub_dot_py="x",
        docs__a__notes_dot_md="x",
    )
    (root / ".gitignore").write_text("*.bin\n*.log\n/build/\ndocs/**/notes.md\n# a comment\n")
    (root / "pkg" / ".gitignore").write_text("!important.log\n")
    return root


def test_git_and_pack_leave_out_the_same_files(code: Path) -> None:
    """What `git` would not track by the .gitignore files of all folders is not packed."""
    subprocess.run(["git", "init", "-q", str(code)], check=True)
    command = ["git", "-C", str(code), "ls-files", "--others", "--exclude-standard"]
    tracked = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert list(pack(code).files) == sorted(tracked)
    assert "pkg/important.log" in tracked
    assert "pkg/debug.log" not in tracked


def test_equal_folders_have_equal_digests(code: Path) -> None:
    """The digest depends on names, contents and the executable bit, and on nothing else."""
    before = pack(code).digest
    os.utime(code / "train.py", (1, 1))
    (code / "__pycache__").mkdir()
    (code / "__pycache__" / "x.pyc").write_text("x")
    assert pack(code).digest == before
    (code / "train.py").chmod(0o755)
    assert pack(code).digest != before


def test_environments_and_repositories_stay_behind(code: Path) -> None:
    """A virtual environment and .git are not code."""
    write(code, myenv__pyvenv_dot_cfg="x", myenv__lib__big_dot_py="x")
    subprocess.run(["git", "init", "-q", str(code)], check=True)
    assert not [name for name in pack(code).files if name.startswith(("myenv", ".git/"))]


def test_archive_unpacks_with_pythons_safe_filter(code: Path, tmp_path: Path) -> None:
    """What is unpacked is what was packed, links inside the folder included."""
    (code / "link.py").symlink_to("train.py")
    package = pack(code)
    with tarfile.open(fileobj=BytesIO(package.content)) as archive:
        archive.extractall(tmp_path / "out", filter="data")
    assert (tmp_path / "out" / "link.py").read_text() == "print()"
    assert (tmp_path / "out" / "link.py").is_symlink()


def test_a_link_out_of_the_folder_is_refused(code: Path) -> None:
    """Such a link would point to nothing on a worker."""
    (code / "escape").symlink_to("/etc/passwd")
    with pytest.raises(InvalidRequestError, match="escape is a link"):
        pack(code)


def test_data_left_in_the_folder_is_refused_by_name(code: Path) -> None:
    """The error names the biggest file."""
    (code / "weights.npy").write_bytes(b"x" * 5000)
    with pytest.raises(InvalidRequestError, match=r"weights\.npy"):
        pack(code, largest=4000)


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    """There would be nothing to run."""
    with pytest.raises(InvalidRequestError, match="nothing to run"):
        pack(tmp_path)
