"""A folder on this machine as a manifest of contents, .gitignore respected, and as a bundle to send."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import stat
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from multislice_nb import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pathspec import GitIgnoreSpec

__all__ = ["Bundle", "Entry", "Tree", "bundle", "digest_of", "scan"]

NEVER = {".git", "__pycache__", ".ipynb_checkpoints"}
"""Folders that no worker has a use for."""

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing in a tree.

    Attributes:
        path: Relative to the tree's root, with `/`.
        kind: `f` a file, `l` a symbolic link inside the tree, `d` a folder.
        content: A file's SHA-256 in hex, a link's target, nothing for a folder.
        size: A file's bytes.
        mode: Permission bits.
    """

    path: str
    kind: str
    content: str
    size: int
    mode: int

    def as_list(self) -> list[str | int]:
        """What the worker's side reads."""
        return [self.path, self.kind, self.content, self.size, self.mode]


@dataclass(frozen=True, slots=True)
class Tree:
    """A folder, or a single file, at one moment.

    Attributes:
        source: The folder or file.
        entries: What is in it, in the order of their paths; a single file is one entry with an empty path.
        skipped: Paths that cannot be sent: sockets, pipes, and links that lead to nothing or to a folder outside.
    """

    source: Path
    entries: tuple[Entry, ...]
    skipped: tuple[str, ...]

    @property
    def files(self) -> list[Entry]:
        """The files in it."""
        return [entry for entry in self.entries if entry.kind == "f"]

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(entry.size for entry in self.entries)

    @property
    def digest(self) -> str:
        """SHA-256 over everything, in hex: equal for equal trees."""
        text = "\n".join(repr(entry.as_list()) for entry in self.entries)
        return hashlib.sha256(text.encode()).hexdigest()

    def local(self, entry: Entry) -> Path:
        """Where an entry is on this machine."""
        return self.source / entry.path if entry.path else self.source


def digest_of(path: Path) -> str:
    """A file's SHA-256 in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def scan(source: Path, *, gitignore: bool = True) -> Tree:
    """Read a folder or a file.

    Args:
        source: What to read.
        gitignore: Whether what .gitignore files exclude is left out: those in the folder, and those above it
            up to the root of its repository.

    Raises:
        errors.InvalidRequestError: There is no such thing, or it cannot be read.
    """
    source = source.expanduser().absolute()
    try:
        if source.is_dir():
            return _Scan(source, gitignore=gitignore).tree()
        return Tree(source, (_file(source, ""),), ())
    except OSError as error:
        raise errors.InvalidRequestError(
            f"{source} cannot be read: {error.strerror or error}.",
            fix="Name a file or folder of this machine that you may read.",
        ) from error


def _file(path: Path, name: str) -> Entry:
    facts = path.stat()
    if not stat.S_ISREG(facts.st_mode):
        raise OSError(0, "it is neither a file nor a folder")
    return Entry(name, "f", digest_of(path), facts.st_size, stat.S_IMODE(facts.st_mode) & 0o777)


class _Scan:
    """One walk through a folder."""

    def __init__(self, root: Path, *, gitignore: bool) -> None:
        self._root = root
        self._gitignore = gitignore
        self._skipped: list[str] = []

    def tree(self) -> Tree:
        rules = self._rules_above() if self._gitignore else []
        entries = sorted(self._walk(self._root, rules), key=lambda entry: entry.path)
        return Tree(self._root, tuple(entries), tuple(sorted(self._skipped)))

    def _rules_above(self) -> list[tuple[Path, GitIgnoreSpec]]:
        """The rules of folders between the repository's root and ours, and of the repository itself."""
        above = [self._root, *self._root.parents]
        repository = next((folder for folder in above if (folder / ".git").exists()), None)
        if repository is None:
            return []
        between = above[1 : above.index(repository) + 1]
        exclude = _rules(repository / ".git" / "info" / "exclude", repository)
        return [rule for folder in between for rule in _rules(folder / ".gitignore", folder)] + exclude

    def _walk(self, folder: Path, above: list[tuple[Path, GitIgnoreSpec]]) -> Iterator[Entry]:
        rules = [*_rules(folder / ".gitignore", folder), *above] if self._gitignore else []
        with os.scandir(folder) as found:
            items = list(found)
        if not items and folder != self._root:
            yield Entry(self._name(folder), "d", "", 0, stat.S_IMODE(folder.stat().st_mode) & 0o777)
        for item in items:
            path, is_folder = Path(item.path), item.is_dir(follow_symlinks=False)
            if (is_folder and item.name in NEVER) or _ignored(path, rules, is_folder=is_folder):
                continue
            if is_folder:
                yield from self._walk(path, rules)
            else:
                yield from self._leaf(path)

    def _leaf(self, path: Path) -> Iterator[Entry]:
        name = self._name(path)
        if path.is_symlink() and self._stays_inside(path):
            yield Entry(name, "l", str(path.readlink()), 0, 0o777)
        elif path.is_file():
            yield _file(path, name)
        else:
            self._skipped.append(name)

    def _stays_inside(self, link: Path) -> bool:
        try:
            target = link.resolve()
        except (OSError, RuntimeError):  # links that lead to each other; RuntimeError before Python 3.13
            return False
        return (
            not link.readlink().is_absolute()
            and target.exists()
            and target.is_relative_to(self._root.resolve())
        )

    def _name(self, path: Path) -> str:
        return path.relative_to(self._root).as_posix()


def _rules(file: Path, folder: Path) -> list[tuple[Path, GitIgnoreSpec]]:
    from pathspec import GitIgnoreSpec

    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [(folder, GitIgnoreSpec.from_lines(lines))]


def _ignored(path: Path, rules: Sequence[tuple[Path, GitIgnoreSpec]], *, is_folder: bool) -> bool:
    """As git decides: the nearest .gitignore that has something to say about a path counts."""
    for folder, spec in rules:
        name = path.relative_to(folder).as_posix() + ("/" if is_folder else "")
        said = spec.check_file(name).include
        if said is not None:
            return said
    return False


@dataclass(slots=True)
class Bundle:
    """Files packed to be sent, in a temporary file of this machine that is gone once it is closed."""

    file: IO[bytes]
    size: int
    sha256: str

    def close(self) -> None:
        """Remove it."""
        self.file.close()

    def chunks(self) -> Iterator[bytes]:
        """Its bytes, a megabyte at a time, from the start."""
        self.file.seek(0)
        while chunk := self.file.read(_CHUNK):
            yield chunk


class _Hashed(io.RawIOBase):
    """A file to write to that hashes on the way."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__()
        self._file = file
        self.hash = hashlib.sha256()
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.hash.update(data)
        written = self._file.write(data)
        self.size += written
        return written


def bundle(tree: Tree, contents: set[str], step: Callable[[int], None] = lambda _: None) -> Bundle:
    """Pack those files of a tree whose content is in `contents`, each content once, compressed.

    Args:
        tree: What they are of.
        contents: SHA-256 of the files that are wanted.
        step: Told the bytes of each file that was packed.

    Raises:
        errors.InvalidRequestError: A file changed after the tree was read, or cannot be read any more.
    """
    file = tempfile.TemporaryFile()  # noqa: SIM115 - it is the bundle's, which closes it
    hashed = _Hashed(file)
    left = set(contents)
    try:
        # Fast compression: it must not be slower than the network that it relieves.
        packed = gzip.GzipFile(fileobj=hashed, mode="wb", compresslevel=1, mtime=0)
        with packed, tarfile.open(fileobj=packed, mode="w|") as archive:
            for entry in tree.files:
                if entry.content in left:
                    left.discard(entry.content)
                    _add(archive, tree, entry)
                    step(entry.size)
    except OSError as error:
        file.close()
        raise errors.InvalidRequestError(
            f"{tree.source} changed while it was being read: {error}.",
            fix="Push it again once it is at rest.",
        ) from error
    except BaseException:
        file.close()
        raise
    return Bundle(file, hashed.size, hashed.hash.hexdigest())


def _add(archive: tarfile.TarFile, tree: Tree, entry: Entry) -> None:
    """Add a file under the name of its content."""
    facts = tarfile.TarInfo(entry.content)
    facts.size = entry.size
    with tree.local(entry).open("rb") as source:
        archive.addfile(facts, source)  # the worker checks the content, which may have changed since
