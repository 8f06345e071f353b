"""A folder of code as one archive, named by the hash of its content.

`.gitignore` files are respected wherever they are in the folder, with git's own rules; what no job needs
(`.git`, caches, virtual environments) is left out too. Equal folders give equal archives, so that unchanged
code is uploaded once.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import stat
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from multislice_nb.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pathspec import GitIgnoreSpec

__all__ = ["LARGEST", "Package", "pack"]

LARGEST = 256 << 20
"""Bytes of code, uncompressed, beyond which it is taken for data that was left in the folder."""

_NEVER = {".git", ".hg", ".svn", "__pycache__", ".ipynb_checkpoints", ".mypy_cache", ".pytest_cache"}
_NEVER |= {".ruff_cache", ".tox", ".nox", "node_modules", ".DS_Store"}


@dataclass(frozen=True, slots=True)
class Package:
    """An archive of code.

    Attributes:
        digest: SHA-256 of the archive, in hexadecimal.
        content: The archive, a gzipped tar.
        files: What is in it, relative to the folder.
        size: Bytes of the files, uncompressed.
    """

    digest: str
    content: bytes = field(repr=False)
    files: tuple[str, ...] = field(repr=False)
    size: int

    @property
    def name(self) -> str:
        """The archive's file name."""
        return f"{self.digest}.tar.gz"


def pack(folder: str | Path, *, largest: int = LARGEST) -> Package:
    """Make an archive of a folder's code.

    Args:
        folder: The folder.
        largest: Bytes that are still taken for code.

    Raises:
        InvalidRequestError: It is no folder, it is empty, too big, or a link in it leads out of it.
    """
    root = Path(folder).expanduser().resolve()
    if not root.is_dir():
        raise InvalidRequestError(f"{folder} is no folder.", fix="Name the folder that holds the job's code.")
    files = sorted(_files(root))
    sizes = {path: path.lstat().st_size for path in files if not path.is_symlink()}
    total = sum(sizes.values())
    if total > largest:
        biggest = sorted(sizes, key=lambda path: -sizes[path])[:3]
        largest_few = ", ".join(
            f"{path.relative_to(root)} ({sizes[path] / 2**20:.0f} MiB)" for path in biggest
        )
        raise InvalidRequestError(
            f"{root} holds {total / 2**20:.0f} MiB, more than code does; the biggest: {largest_few}.",
            fix="Keep data and checkpoints elsewhere, or name them in .gitignore.",
        )
    if not files:
        raise InvalidRequestError(f"There is nothing to run in {root}.", fix="Name the folder with the code.")
    content = _archive(root, files)
    names = tuple(path.relative_to(root).as_posix() for path in files)
    return Package(hashlib.sha256(content).hexdigest(), content, names, total)


def _files(root: Path) -> Iterator[Path]:
    specs: dict[Path, GitIgnoreSpec] = {}
    for place, folders, names in os.walk(root):
        here = Path(place)
        if (here / ".gitignore").is_file():
            specs[here] = _spec(here / ".gitignore")
        folders[:] = sorted(
            name
            for name in folders
            if name not in _NEVER
            and not _is_environment(here / name)
            and not _ignored(here / name, root, specs)
        )
        linked = [name for name in folders if (here / name).is_symlink()]
        for name in [*names, *linked]:
            path = here / name
            if name in _NEVER or _ignored(path, root, specs):
                continue
            if path.is_symlink():
                _check_link(path, root)
                yield path
            elif stat.S_ISREG(path.lstat().st_mode):
                yield path


def _spec(file: Path) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec

    return GitIgnoreSpec.from_lines(file.read_text(encoding="utf-8", errors="replace").splitlines())


def _ignored(path: Path, root: Path, specs: dict[Path, GitIgnoreSpec]) -> bool:
    """Whether git would ignore it: the deepest .gitignore that says anything about it decides."""
    folder = path.parent
    while True:
        spec = specs.get(folder)
        if spec is not None:
            name = path.relative_to(folder).as_posix()
            said = spec.check_file(f"{name}/" if path.is_dir() and not path.is_symlink() else name)
            if said.include is not None:
                return bool(said.include)
        if folder == root:
            return False
        folder = folder.parent


def _is_environment(folder: Path) -> bool:
    return (folder / "pyvenv.cfg").is_file() or (folder / "conda-meta").is_dir()


def _check_link(path: Path, root: Path) -> None:
    if not path.resolve().is_relative_to(root) or path.readlink().is_absolute():
        raise InvalidRequestError(
            f"{path.relative_to(root)} is a link to {path.readlink()}, which is not in {root}.",
            fix="Copy what it points to into the folder, or name the link in .gitignore.",
        )


def _archive(root: Path, files: list[Path]) -> bytes:
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0, filename="") as squeezed,
        tarfile.open(fileobj=squeezed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in files:
            info = tarfile.TarInfo(path.relative_to(root).as_posix())
            if path.is_symlink():
                info.type, info.linkname, info.mode = tarfile.SYMTYPE, str(path.readlink()), 0o777
                archive.addfile(info)
                continue
            content = path.read_bytes()
            info.size = len(content)
            info.mode = 0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()
