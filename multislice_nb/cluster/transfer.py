"""What a push or a pull is doing, and what it has done: frozen, with text and HTML forms."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from multislice_nb.cloud.display import counted
from multislice_nb.cluster.inventory import ranks_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["PullResult", "PushResult", "Transfer", "size_text"]


def size_text(count: int) -> str:
    """Bytes in words: decimal units, as disks and networks are sold."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


@dataclass(frozen=True, slots=True)
class Transfer:
    """A look at a push or a pull under way.

    Attributes:
        step: What it does now, as `sending`.
        done: Bytes over the notebook's network so far.
        total: Bytes that it will be; 0 where that is not known.
        workers_done: Workers that have it all.
        workers: Workers that take part.
    """

    step: str
    done: int
    total: int
    workers_done: int
    workers: int

    def __str__(self) -> str:
        size = f" · {size_text(self.done)}" if self.done else ""
        of = f" of {size_text(self.total)}" if size and self.total else ""
        return f"{self.step}{size}{of} · {self.workers_done} of {self.workers} workers"


@dataclass(frozen=True, slots=True)
class PushResult:
    """What a push did.

    Attributes:
        source: The folder or file on this machine.
        destination: Its path on the workers; `~` is the home folder there.
        files: How many files the source has.
        size: Bytes of them all.
        sent: By rank, how many files were missing there and came; 0 where nothing had to.
        removed: By rank, what was removed there because the source has it no more.
        bundle_bytes: Bytes of what was missing, compressed.
        uplink_bytes: Bytes that the notebook itself sent: `bundle_bytes` times the workers it sent to.
        direct: Ranks that the notebook sent to; the others got it from them.
        skipped: Paths of the source that cannot be sent, as sockets and dangling links.
        digest: SHA-256 of the whole source, in hex.
        seconds: How long it took.
    """

    source: Path
    destination: str
    files: int
    size: int
    sent: Mapping[int, int]
    removed: Mapping[int, tuple[str, ...]]
    bundle_bytes: int
    uplink_bytes: int
    direct: tuple[int, ...]
    skipped: tuple[str, ...]
    digest: str
    seconds: float

    @property
    def unchanged(self) -> bool:
        """Whether every worker had it all before."""
        return not any(self.sent.values()) and not any(self.removed.values())

    def __str__(self) -> str:
        total, what = len(self.sent), f"{self.source.name} -> {self.destination}"
        everyone = f"{total} workers" if total > 1 else ranks_text(self.sent)
        text = f"{what}: {counted(self.files, 'file')}, {size_text(self.size)} on {everyone}"
        if self.unchanged:
            return f"{text}; unchanged, nothing sent"
        took = [rank for rank, count in self.sent.items() if count]
        lines = [f"{text} in {self.seconds:.1f} s"]
        if took:
            share = f"{counted(max(self.sent.values()), 'file')} to {ranks_text(took, total=total)}"
            lines.append(
                f"sent {share}; {size_text(self.uplink_bytes)} from this machine ({len(self.direct)} x)"
            )
        gone = sorted({name for names in self.removed.values() for name in names})
        if gone:
            lines.append(f"removed: {_some(gone)}")
        if self.skipped:
            lines.append(f"left out, neither files nor links inside: {_some(self.skipped)}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


@dataclass(frozen=True, slots=True)
class PullResult:
    """What a pull did.

    Attributes:
        source: The path or pattern on the workers.
        folder: The folder on this machine that holds one folder for each worker.
        folders: By rank, its folder.
        files: By rank, how many files came.
        size: Bytes that came over the network, compressed.
        seconds: How long it took.
    """

    source: str
    folder: Path
    folders: Mapping[int, Path]
    files: Mapping[int, int]
    size: int
    seconds: float
    skipped: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """By rank, members that would have landed outside the worker's folder, or are no files."""

    def __str__(self) -> str:
        count = sum(self.files.values())
        what = f"{self.source} of {ranks_text(self.files)} -> {self.folder}"
        lines = [f"{what}: {counted(count, 'file')}, {size_text(self.size)} in {self.seconds:.1f} s"]
        lines += [f"left out of rank {rank}: {_some(names)}" for rank, names in self.skipped.items() if names]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def _some(names: tuple[str, ...] | list[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more
