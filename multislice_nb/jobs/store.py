"""Where a job's code, record, logs and results live: a bucket or a folder, reached through fsspec.

Documents are JSON and are written whole or not at all. Two workers may want to write the same document; the
first one wins where that matters (`create`), which is how a gang agrees on anything without a server.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import posixpath
import secrets
import shutil
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, cast

from multislice_nb.errors import ConfigurationError, InvalidRequestError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["ENVIRONMENT", "STORAGE_EMULATOR", "Store", "inside"]

ENVIRONMENT = "MULTISLICE_NB_STORE"
"""The environment variable that names the store where no argument does."""

STORAGE_EMULATOR = "STORAGE_EMULATOR_HOST"
"""Google's own variable that names a local server instead of Cloud Storage."""

_PROTOCOLS = {"file", "gs"}

_ABSENT = (FileNotFoundError, NotADirectoryError)


class Store:
    """A tree of objects under one URL.

    Args:
        url: `gs://bucket/folder`, `file:///folder`, or a local path.

    Raises:
        InvalidRequestError: It is no such URL.
        ConfigurationError: The library that reaches it is not installed.
    """

    def __init__(self, url: str | Path) -> None:
        self.url = _normal(str(url))
        protocol, _, root = self.url.partition("://")
        self.is_local = protocol == "file"
        self._root = root
        self._library = _filesystem(protocol)

    @property
    def is_near(self) -> bool:
        """Whether it is on this machine: a folder, or a bucket of a local server."""
        return self.is_local or bool(os.environ.get(STORAGE_EMULATOR))

    def _call(self, method: str, key: str, *args: Any, source: Path | None = None, **options: Any) -> Any:
        """Call the filesystem; what goes wrong there, with whatever error of an HTTP client, is a StoreError here.

        Whether something is there is for the caller to judge. A local file that is copied comes first.
        """
        paths = (self.path(key),) if source is None else (str(source), self.path(key))
        try:
            return getattr(self._library, method)(*paths, *args, **options)
        except (*_ABSENT, FileExistsError):
            raise
        except Exception as error:
            code = str(getattr(error, "code", ""))
            if code == "412":  # gcsfs: the object is not to be, and is
                raise FileExistsError(self.object_url(key)) from error
            if code == "416":  # gcsfs: asked for what is behind its end
                return b""
            raise self._trouble(key, error) from error

    def _put(self, method: str, key: str, *args: Any, **options: Any) -> None:
        try:
            self._call(method, key, *args, **options)
        except FileNotFoundError as error:
            missing = FileNotFoundError(errno.ENOENT, "there is no such bucket")
            raise self._trouble(key, missing) from error

    def _trouble(self, key: str, error: Exception) -> StoreError:
        told = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        return StoreError(
            f"{self.object_url(key)} cannot be reached: {told}.",
            fix="See that the bucket or the folder exists, and that you may read and write it.",
        )

    @contextlib.contextmanager
    def _drafted(self, key: str) -> Iterator[Path]:
        """A file of another name beside a local object, to be put in its place; gone afterwards."""
        target = Path(self.path(key))
        draft = target.with_name(f".{target.name}.{secrets.token_hex(6)}")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            yield draft
        except OSError as error:
            raise self._trouble(key, error) from error
        finally:
            with contextlib.suppress(OSError):
                draft.unlink()

    def child(self, *parts: str) -> Store:
        """The tree under a folder of this one."""
        return Store(posixpath.join(self.url, *parts))

    def path(self, key: str) -> str:
        """What the filesystem calls an object."""
        return posixpath.join(self._root, key)

    def object_url(self, key: str) -> str:
        """The whole URL of an object."""
        return posixpath.join(self.url, key)

    def read(self, key: str, start: int | None = None, end: int | None = None) -> bytes | None:
        """An object's bytes, or None where there is none.

        Args:
            key: Its name.
            start: From this byte on.
            end: Up to this byte.
        """
        try:
            return cast("bytes", self._call("cat_file", key, start=start, end=end))
        except _ABSENT:
            return None

    def write(self, key: str, content: bytes) -> None:
        """Put an object in place of whatever is there; readers see the old one or the new one."""
        if not self.is_local:
            self._put("pipe_file", key, content)
            return
        with self._drafted(key) as draft:
            _write_new(draft, content)
            draft.replace(self.path(key))

    def create(self, key: str, content: bytes) -> bool:
        """Put an object where there is none; says whether it was this call that did.

        Of several callers, on whatever machines, one gets True.
        """
        if self.is_local:
            with self._drafted(key) as draft:
                _write_new(draft, content)
                return _linked(draft, Path(self.path(key)))
        try:
            self._put("pipe_file", key, content, mode="create")
        except FileExistsError:
            return False
        return True

    def read_json(self, key: str) -> dict[str, Any] | None:
        """A document, or None where there is none."""
        content = self.read(key)
        return None if content is None else cast("dict[str, Any]", json.loads(content))

    def write_json(self, key: str, document: Mapping[str, Any]) -> None:
        """Put a document in place."""
        self.write(key, _encode(document))

    def create_json(self, key: str, document: Mapping[str, Any]) -> bool:
        """Put a document where there is none; says whether this call did."""
        return self.create(key, _encode(document))

    def list(self, folder: str = "") -> list[str]:
        """The names directly in a folder, sorted; none where there is no such folder."""
        place = self.path(folder).rstrip("/")
        try:
            entries = self._call("ls", folder, detail=False)
        except _ABSENT:
            return []
        names = {posixpath.basename(str(entry).rstrip("/")) for entry in entries}
        return sorted(name for name in names - {posixpath.basename(place)} if not name.startswith("."))

    def walk(self, folder: str = "") -> dict[str, int]:
        """Every object under a folder, by its name relative to that, with its size in bytes."""
        try:
            found = self._call("find", folder, detail=True)
        except _ABSENT:
            return {}
        prefix = self.path(folder).rstrip("/") + "/"
        return {name.removeprefix(prefix): int(info["size"] or 0) for name, info in sorted(found.items())}

    def exists(self, key: str) -> bool:
        """Whether there is such an object."""
        return bool(self._call("exists", key))

    def upload(self, source: Path, key: str) -> None:
        """Copy a local file here, whole or not at all."""
        if not self.is_local:
            self._put("put_file", key, source=source)  # in parts, and there once all of them are
            return
        with self._drafted(key) as draft:
            shutil.copyfile(source, draft)
            draft.replace(self.path(key))

    def download(self, key: str, target: Path) -> None:
        """Copy an object to a local file.

        Raises:
            InvalidRequestError: There can be no such file.
        """
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidRequestError(
                f"{target.parent} cannot be made: {error.strerror}.", fix="Name another folder."
            ) from error
        self._call("get_file", key, str(target))

    def remove(self, key: str) -> None:
        """Remove an object or a folder with all that is in it; removing what is not there is no error."""
        try:
            self._call("rm", key, recursive=True)
        except _ABSENT:
            return

    def __repr__(self) -> str:
        return f"<Store {self.url}>"


def inside(folder: Path, name: str) -> Path:
    """Where an object goes below a local folder. None leaves it, though a bucket takes names such as `../x`."""
    return folder.joinpath(*(part for part in PurePosixPath(name).parts if part.strip("/") not in {"", ".."}))


def _write_new(path: Path, content: bytes) -> None:
    """Write a file that only this user reads."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _linked(draft: Path, target: Path) -> bool:
    """Give a file its name, unless that is taken."""
    try:
        os.link(draft, target)
    except FileExistsError:
        return False
    return True


def _encode(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, indent=1, sort_keys=True).encode()


def _normal(url: str) -> str:
    if "://" not in url:
        url = f"file://{Path(url).expanduser().resolve()}"
    protocol, _, root = url.partition("://")
    if protocol not in _PROTOCOLS or not root.strip("/") or (protocol == "file" and not root.startswith("/")):
        raise InvalidRequestError(
            f"{url!r} is no store for jobs.", fix="Name a bucket, as gs://my-bucket/jobs, or a folder."
        )
    return f"{protocol}://{root.rstrip('/')}"


def _filesystem(protocol: str) -> Any:
    try:
        # Another machine writes here too: a listing that was kept would be wrong.
        if protocol == "gs" and os.environ.get(STORAGE_EMULATOR):
            # The plain class: the one that fsspec takes asks Google, credentials in hand, what kind of bucket it is.
            from gcsfs.core import GCSFileSystem

            return GCSFileSystem(token="anon", use_listings_cache=False)  # noqa: S106 - that there is none
        import fsspec

        return fsspec.filesystem(protocol, use_listings_cache=False)
    except ImportError as error:
        raise ConfigurationError.of_library(f"A store at {protocol}://", error, "gcs") from error
