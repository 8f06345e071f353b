"""A profile: the traces of several workers in one folder, and what they say in short."""

from __future__ import annotations

import html
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from multislice_nb.errors import InvalidRequestError
from multislice_nb.profiles.traces import device_times

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from multislice_nb.profiles.traces import DeviceTime

__all__ = ["SUFFIX", "HostProfile", "Profile", "read_run", "runs_folder"]

SUFFIX = ".xplane.pb"

_COLUMNS = ("span", "compute", "collective", "exposed", "idle")
_SHOWN = ("worker", "devices", "traced", "compute", "collectives", "not hidden", "idle", "most of it")


def runs_folder(folder: Path) -> Path:
    """Where xprof and TensorBoard look for runs below a log folder."""
    return folder / "plugins" / "profile"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostProfile:
    """The trace of one worker.

    Attributes:
        name: Which one, as xprof shows it: `slice_000_worker_000`.
        path: The trace.
        devices: Where the time of each of its devices went; none where none ran anything.
    """

    name: str
    path: Path
    devices: tuple[DeviceTime, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Traces of several workers that belong together.

    Attributes:
        folder: The log folder that xprof is given; it may hold other runs too.
        run: Name of this one.
        hosts: One for each worker.
        problems: What went wrong on the way, as sentences.
    """

    folder: Path
    run: str
    hosts: tuple[HostProfile, ...]
    problems: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of the traces."""
        return sum(host.path.stat().st_size for host in self.hosts if host.path.exists())

    @property
    def how_to_open(self) -> str:
        """What to type in a terminal to look at it."""
        return f"pip install xprof && xprof --logdir={shlex.quote(str(self.folder))} --port=6006"

    @property
    def frame(self) -> pd.DataFrame:
        """A row for each device: worker, device, and seconds.

        `span` is from its first operation to its last, `compute` and `collective` are with at least one such
        operation, `exposed` is with collectives alone, `idle` with neither; then the seconds of each kind of
        collective.
        """
        import pandas as pd

        pairs = [(host, device) for host in self.hosts for device in host.devices]
        kinds = sorted({kind for _, device in pairs for kind in device.kinds})
        rows: list[dict[str, Any]] = [
            {"worker": host.name, "device": device.device}
            | {name: getattr(device, name) for name in _COLUMNS}
            | {kind: device.kinds.get(kind, 0.0) for kind in kinds}
            for host, device in pairs
        ]
        return pd.DataFrame(rows, columns=["worker", "device", *_COLUMNS, *kinds])

    def __str__(self) -> str:
        table = self._table()
        return "\n".join([*([table.to_string(index=False)] if len(table) else []), *self._notes()])

    def __repr__(self) -> str:
        return f"<Profile of {len(self.hosts)} workers in {self.folder}, run {self.run}>"

    def _repr_html_(self) -> str:
        table = self._table()
        body = table.to_html(index=False, border=0, escape=True) if len(table) else ""
        return body + "".join(f"<p>{html.escape(line)}</p>" for line in self._notes())

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        printer.text(str(self))

    def _table(self) -> pd.DataFrame:
        """A row for each worker, the mean of its devices."""
        import pandas as pd

        rows = [_row(host) for host in self.hosts if host.devices]
        return pd.DataFrame(rows, columns=list(_SHOWN))

    def _notes(self) -> list[str]:
        quiet = [host.name for host in self.hosts if not host.devices]
        empty = [f"No device ran anything while {', '.join(quiet)} was traced."] if quiet else []
        told = f"Traces of {len(self.hosts)} workers, {self.size / 1e6:.1f} MB: {runs_folder(self.folder) / self.run}"
        return [*empty, *self.problems, told, f"To look at them: {self.how_to_open}"]


def _row(host: HostProfile) -> dict[str, Any]:
    count = len(host.devices)
    mean = {name: sum(getattr(device, name) for device in host.devices) / count for name in _COLUMNS}
    kinds = {kind for device in host.devices for kind in device.kinds}
    of_kind = {kind: sum(device.kinds.get(kind, 0.0) for device in host.devices) / count for kind in kinds}
    most = max(of_kind, key=lambda kind: of_kind[kind], default="")
    span = mean["span"] or 1.0
    return {
        "worker": host.name,
        "devices": count,
        "traced": f"{mean['span']:.3g} s",
        "compute": f"{mean['compute'] / span:.0%}",
        "collectives": f"{mean['collective'] / span:.0%}",
        "not hidden": f"{mean['exposed'] / span:.0%}",
        "idle": f"{mean['idle'] / span:.0%}",
        "most of it": f"{most} {of_kind[most] / span:.0%}" if most else "",
    }


def read_run(folder: Path, run: str, problems: tuple[str, ...] = ()) -> Profile:
    """A run that is in a log folder; a trace that cannot be read is one of its problems."""
    hosts, wrong = [], list(problems)
    for path in sorted((runs_folder(folder) / run).glob(f"*{SUFFIX}")):
        try:
            devices = device_times(path)
        except InvalidRequestError as error:
            wrong.append(error.what)
            devices = ()
        hosts.append(HostProfile(name=path.name.removesuffix(SUFFIX), path=path, devices=devices))
    return Profile(folder=folder, run=run, hosts=tuple(hosts), problems=tuple(wrong))
