"""The worker's side of push and pull.

A push has four steps, so that nothing at the destination changes before every file has arrived whole on every
worker: `survey` says what is missing, `receive` or `fetch` brings the bundle (from the notebook, or from another
worker that runs `serve`), `unpack` checks each file and lays it beside the destination, and `commit` moves all
into place. `discard` forgets a push that failed.
"""

from __future__ import annotations

import contextlib
import glob
import gzip
import hashlib
import hmac
import os
import shutil
import sys
import tarfile
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    Request = dict[str, Any]

CHUNK = 1 << 20
STALE_AFTER = 24 * 3600.0
"""Seconds after which the leftovers of a push that never ended are removed."""


def _folder(request: Request) -> Path:
    return Path.home() / ".multislice_nb" / "incoming" / str(request["id"])


def _destination(request: Request) -> Path:
    return Path.home() / Path(request["destination"]).expanduser()  # an absolute one stays as it is


def _staging(request: Request) -> Path:
    """Beside the destination, for a move within a file system is what makes it appear whole."""
    destination = _destination(request)
    return destination.parent / ".{}.multislice_nb-{}".format(destination.name, request["id"])


def _digest(path: Path) -> str:
    hasher = hashlib.sha256()
    with path.open("rb") as file:
        for chunk in iter(lambda: file.read(CHUNK), b""):
            hasher.update(chunk)
    return hasher.hexdigest()


def _present(root: Path, entry: list[Any]) -> bool:
    """Whether an entry is there already, with its content and mode."""
    path, kind, content, size, mode = entry
    here = root / path if path else root
    if kind == "l":
        return here.is_symlink() and os.readlink(str(here)) == content  # noqa: PTH115 - Path.readlink is of 3.9
    if here.is_symlink():
        return False
    if kind == "d":
        return here.is_dir()
    facts = here.stat() if here.is_file() else None
    if facts is None or facts.st_size != size or facts.st_mode & 0o777 != mode:
        return False
    return bool(_digest(here) == content)


def survey(request: Request, _stream: IO[bytes]) -> dict[str, Any]:
    """What of a tree is missing at the destination: the indexes of entries, and what is there beside it."""
    _remove_stale()
    root, entries = _destination(request), request["entries"]
    single = len(entries) == 1 and not entries[0][0]
    if single and root.is_dir():
        raise IsADirectoryError(str(root) + " is a folder; end the destination with / to put a file into it")
    if not single and root.exists() and not root.is_dir():
        raise NotADirectoryError(str(root) + " is a file, where a folder is to go")
    missing = [index for index, entry in enumerate(entries) if not _present(root, entry)]
    known = {entry[0] for entry in entries}
    extra = [] if single or not request["delete"] else [name for name in _names(root) if name not in known]
    return {"missing": missing, "extra": extra}


def _names(root: Path) -> Iterator[str]:
    """Files and links under a folder, and folders that are empty."""
    for folder, folders, files in os.walk(str(root)):
        where = Path(folder)
        links = [name for name in folders if (where / name).is_symlink()]
        for name in files + links:
            yield (where / name).relative_to(root).as_posix()
        if not folders and not files and where != root:
            yield where.relative_to(root).as_posix()


def _remove_stale() -> None:
    incoming = Path.home() / ".multislice_nb" / "incoming"
    for old in incoming.glob("*") if incoming.is_dir() else []:
        if time.time() - old.stat().st_mtime > STALE_AFTER:
            shutil.rmtree(str(old), ignore_errors=True)


def receive(request: Request, stream: IO[bytes]) -> dict[str, Any]:
    """Take the bundle from standard input."""
    return _store(request, stream)


def fetch(request: Request, _stream: IO[bytes]) -> dict[str, Any]:
    """Take the bundle from another worker."""
    import urllib.request

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy is for the world outside
    with opener.open(request["url"], timeout=request["patience"]) as answer:
        return _store(request, answer)


def _store(request: Request, source: Any) -> dict[str, Any]:
    folder = _folder(request)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    hasher, partial = hashlib.sha256(), folder / "bundle.partial"
    with partial.open("wb") as file:
        for chunk in iter(lambda: source.read(CHUNK), b""):
            hasher.update(chunk)
            file.write(chunk)
    if hasher.hexdigest() != request["sha256"]:
        partial.unlink()
        raise EOFError("the bundle did not arrive whole")
    partial.rename(folder / "bundle")
    return {}


def serve(request: Request, stream: IO[bytes]) -> dict[str, Any]:
    """Give the bundle to whoever knows the token, until standard input ends."""
    import http.server
    import threading

    path, token = _folder(request) / "bundle", request["token"]

    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = 60

        def do_GET(self) -> None:
            if not hmac.compare_digest(self.path.encode(), ("/" + token).encode()):
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(path.stat().st_size))
            self.end_headers()
            with path.open("rb") as file:
                shutil.copyfileobj(file, self.wfile, CHUNK)

        def log_message(self, *_: Any) -> None:
            """Say nothing: standard error is for what goes wrong."""

    with http.server.ThreadingHTTPServer((request["address"], 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        sys.stdout.write(str(server.server_address[1]) + "\n")
        sys.stdout.flush()
        while stream.read(CHUNK):
            pass
        server.shutdown()
    return {}


def unpack(request: Request, _stream: IO[bytes]) -> dict[str, Any]:
    """Lay what is missing beside the destination, each file checked."""
    staging, bundle = _staging(request), _folder(request) / "bundle"
    shutil.rmtree(str(staging), ignore_errors=True)
    staging.mkdir(parents=True, mode=0o700)
    wanted: dict[str, list[list[Any]]] = {}
    for entry in request["entries"]:
        if entry[1] == "f":
            wanted.setdefault(entry[2], []).append(entry)
    if bundle.exists():
        with tarfile.open(str(bundle), "r|gz") as archive:
            for member in archive:
                copies = wanted.pop(member.name, [])
                source = archive.extractfile(member)
                if copies and source is not None:
                    _lay(staging, source, copies)
        bundle.unlink()
    if wanted:
        names = ", ".join(copies[0][0] for copies in list(wanted.values())[:3])
        raise EOFError(names + " did not arrive")
    for path, kind, content, _, mode in request["entries"]:
        here = staging / "tree" / path
        if kind == "d":
            here.mkdir(parents=True, exist_ok=True)
            here.chmod(mode)
        elif kind == "l":
            here.parent.mkdir(parents=True, exist_ok=True)
            here.symlink_to(content)
    return {}


def _lay(staging: Path, source: IO[bytes], copies: list[list[Any]]) -> None:
    """Write one content to every path that has it."""
    hasher, spool = hashlib.sha256(), staging / "content"
    with spool.open("wb") as file:
        for chunk in iter(lambda: source.read(CHUNK), b""):
            hasher.update(chunk)
            file.write(chunk)
    if hasher.hexdigest() != copies[0][2]:
        raise EOFError(copies[0][0] + " changed while it was sent; push it again")
    for number, (path, _, _, _, mode) in enumerate(copies):
        here = staging / "tree" / path if path else staging / "tree"
        here.parent.mkdir(parents=True, exist_ok=True)
        if number == len(copies) - 1:
            spool.rename(here)
        else:
            shutil.copyfile(str(spool), str(here))
        here.chmod(mode)


def commit(request: Request, _stream: IO[bytes]) -> dict[str, Any]:
    """Move what was unpacked into place, and remove what the tree does not have, if that was asked for."""
    root, staging = _destination(request), _staging(request)
    tree = staging / "tree"
    root.parent.mkdir(parents=True, exist_ok=True)
    if tree.exists() and not root.exists() and not root.is_symlink():
        tree.rename(root)  # all at once
    elif tree.is_file():
        os.replace(str(tree), str(root))  # noqa: PTH105 - a str works in every version
    elif tree.exists():
        for name in list(_names(tree)):
            _replace(tree / name, root / name)
    for name in request["extra"]:
        _remove(root, root / name)
    discard(request, _stream)
    return {}


def _replace(source: Path, target: Path) -> None:
    """Put a file, a link or an empty folder where it belongs, whatever is there."""
    _clear_way(target.parent)
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir() and not source.is_symlink():
        target.mkdir(exist_ok=True)
        return
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(str(target))
    os.replace(str(source), str(target))  # noqa: PTH105 - a str works in every version


def _clear_way(folder: Path) -> None:
    """A file where the tree has a folder gives way."""
    for above in [folder, *folder.parents]:
        if above.is_file():
            above.unlink()
            return
        if above.is_dir():
            return


def _remove(root: Path, path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    elif path.is_symlink() or path.exists():
        path.unlink()
    for above in path.parents:
        if above == root or any(above.iterdir()):
            return
        above.rmdir()


def discard(request: Request, _stream: IO[bytes]) -> dict[str, Any]:
    """Remove what a push left beside the destination."""
    shutil.rmtree(str(_staging(request)), ignore_errors=True)
    shutil.rmtree(str(_folder(request)), ignore_errors=True)
    return {}


def send(request: Request, _stream: IO[bytes]) -> dict[str, Any]:
    """Write files and folders to standard output as a compressed tar: a path, or what a pattern matches."""
    pattern = str(Path.home() / Path(request["path"]).expanduser())
    literal = os.path.lexists(pattern)
    found = [pattern] if literal else sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - absolute patterns
    if not found:
        raise FileNotFoundError("there is no " + request["path"])
    packed = gzip.GzipFile(fileobj=sys.stdout.buffer, mode="wb", compresslevel=1)
    with packed, tarfile.open(fileobj=packed, mode="w|") as archive:
        for path, name in _named(pattern, found, literal=literal):
            # A socket or a pipe cannot be read to its end, and is left out as tar itself does.
            archive.add(str(path), arcname=name, filter=_plain)
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.buffer.flush()
    return {}


def _named(pattern: str, found: list[str], *, literal: bool) -> Iterator[tuple[Path, str]]:
    """Each thing once, with its path below the folder before the first wildcard, which no other has."""
    parts = Path(pattern).parts
    fixed = next((i for i, part in enumerate(parts) if set(part) & set("*?[")), len(parts))
    base = Path(pattern).parent if literal else Path(*parts[:fixed])
    taken: set[Path] = set()
    for path in map(Path, found):
        if not taken.isdisjoint(path.parents):  # it comes with the folder that it is in
            continue
        if path.is_dir() and not path.is_symlink():
            taken.add(path)
        name = str(path.relative_to(base))
        yield path, path.name if name == "." else name


def _plain(member: tarfile.TarInfo) -> Any:
    return member if member.isfile() or member.isdir() or member.issym() or member.islnk() else None
