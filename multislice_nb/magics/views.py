"""What subcommands return where no object of the other rooms says it: text and HTML, everything escaped."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from multislice_nb._texts import grouped, lasted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from multislice_nb.cloud import Cloud, NodeStatus, QueuedResource, QueuedResources, StateChange
    from multislice_nb.cloud.cost import Usage
    from multislice_nb.cluster import Cluster
    from multislice_nb.cluster.detached import Detached, DetachedStatus
    from multislice_nb.experiments import Notebook

__all__ = [
    "Description",
    "Intensity",
    "Note",
    "Status",
    "Table",
    "Timeline",
    "commands",
    "experiments",
    "timeline_text",
]


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence or a few lines."""

    text: str

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Table:
    """Rows below a header.

    Attributes:
        header: Names of the columns, in lower case.
        rows: Their cells.
        empty: What to say where there are none.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    empty: str

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        from multislice_nb.cloud.display import shouted, text_table

        return text_table(shouted(self.header), self.rows) if self.rows else self.empty

    def _repr_html_(self) -> str:
        from multislice_nb.cloud.display import html_table

        return html_table(self.header, self.rows) if self.rows else f"<p>{html.escape(self.empty)}</p>"


@dataclass(frozen=True, slots=True)
class Status:
    """Everything at a glance.

    Attributes:
        cloud: The connection, if there is one.
        queued_resources: Those of its zone.
        clusters: The attached ones, the current one first.
        elsewhere: Zones of this user's queued resources outside that zone, by name.
    """

    cloud: Cloud | None
    queued_resources: QueuedResources | None
    clusters: tuple[Cluster, ...]
    elsewhere: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        if self.cloud is None:
            return (
                "Not connected. Connect with %multislice connect; %multislice --help lists all subcommands."
            )
        attached = [
            f"{'→' if n == 0 else ' '} {cluster.name}: {cluster}" for n, cluster in enumerate(self.clusters)
        ]
        return "\n".join(
            [
                _first_line(self.cloud),
                str(self.queued_resources),
                *filter(None, [self._others()]),
                *(attached or ["No cluster is attached."]),
            ]
        )

    def _repr_html_(self) -> str:
        if self.cloud is None or self.queued_resources is None:
            return f"<p>{html.escape(repr(self))}</p>"
        attached = "".join(
            f"<li>{'<b>' if n == 0 else ''}{html.escape(cluster.name)}{'</b>' if n == 0 else ''}: "
            f"{html.escape(str(cluster))}</li>"
            for n, cluster in enumerate(self.clusters)
        )
        clusters = f"<ul>{attached}</ul>" if attached else "<p>No cluster is attached.</p>"
        others = f"<p>{html.escape(self._others())}</p>" if self.elsewhere else ""
        listed = f"{self.queued_resources._repr_html_()}{others}"
        return f"<p>{html.escape(_first_line(self.cloud))}</p>{listed}{clusters}"

    def _others(self) -> str:
        told = ", ".join(f"{name} in {zone}" for name, zone in self.elsewhere.items())
        return f"In other zones: {told}." if told else ""


@dataclass(frozen=True, slots=True)
class Description:
    """One queued resource: its state, how it came there, its slices."""

    queued_resource: QueuedResource
    nodes: tuple[NodeStatus, ...]
    timeline: tuple[StateChange, ...]

    def __repr__(self) -> str:
        lines = [str(self.queued_resource)]
        if self.timeline:
            lines.append(timeline_text(self.timeline))
        return "\n".join([*lines, *(f"  {node}" for node in self.nodes)])

    def _repr_html_(self) -> str:
        from multislice_nb.cloud.display import html_table

        header = ("node", "slice", "type", "state", "health", "workers")
        rows = html_table(header, [node.row() for node in self.nodes]) if self.nodes else ""
        path = f"<p>{html.escape(timeline_text(self.timeline))}</p>" if self.timeline else ""
        return f"{self.queued_resource._repr_html_()}{path}{rows}"


@dataclass(frozen=True, slots=True)
class Timeline:
    """When a queued resource came into each of its states, and for how long."""

    name: str
    changes: tuple[StateChange, ...]
    usage: Usage

    def _header(self) -> tuple[str, ...]:
        return ("state", *(("by",) if self._told else ()), "since", "for")

    @property
    def _told(self) -> bool:
        """Whether the API says of any change who brought it about."""
        return any(change.initiator for change in self.changes)

    def _rows(self) -> list[tuple[str, ...]]:
        afters = [*self.changes[1:], None]
        return [
            (
                change.state,
                *((change.initiator,) if self._told else ()),
                f"{change.at:%Y-%m-%d %H:%M:%S %Z}",
                lasted((after.at - change.at).total_seconds()) if after else "",
            )
            for change, after in zip(self.changes, afters, strict=True)
        ]

    def __repr__(self) -> str:
        from multislice_nb.cloud.display import shouted, text_table

        table = text_table(shouted(self._header()), self._rows())
        return "\n".join(part for part in (self.name, table, str(self.usage)) if part)

    def _repr_html_(self) -> str:
        from multislice_nb.cloud.display import html_table

        table = html_table(self._header(), self._rows(), caption=self.name)
        return f"{table}<p>{html.escape(str(self.usage))}</p>"


def commands(found: Iterable[tuple[Detached, DetachedStatus]]) -> Table:
    """Detached shell commands, each with how it stands."""
    rows = [
        (
            one.id,
            one.name,
            f"{one.started:%Y-%m-%d %H:%M:%S %Z}" if one.started else "",
            str(status).removeprefix(f"{one.name}: "),
        )
        for one, status in found
    ]
    return Table(("id", "name", "started", "state"), tuple(rows), empty="No detached commands.")


@dataclass(frozen=True, slots=True)
class Intensity:
    """From which batch on DCN does not slow training down.

    Attributes:
        generation: Of the TPU.
        threshold: What the hardware computes while one bit crosses DCN, in FLOPs per bit.
        rows: Slices; smallest and advised batch in tokens per slice; FLOPs per bit of the batch asked about.
        tokens: That batch, in tokens per slice.
    """

    generation: str
    threshold: float
    rows: tuple[tuple[int, float, float, float | None], ...]
    tokens: float | None

    def _header(self) -> tuple[str, ...]:
        asked = () if self.tokens is None else (f"FLOPs per bit of {grouped(self.tokens)} tokens",)
        return ("slices", "smallest batch, tokens a slice", "advised batch", *asked)

    def _cells(self) -> list[tuple[str, ...]]:
        return [
            (str(slices), grouped(smallest), grouped(advised), *(() if found is None else (grouped(found),)))
            for slices, smallest, advised, found in self.rows
        ]

    def _title(self) -> str:
        return f"{self.generation}: {grouped(self.threshold)} FLOPs per bit over DCN"

    def __repr__(self) -> str:
        from multislice_nb.cloud.display import text_table

        return f"{self._title()}\n{text_table(self._header(), self._cells())}"

    def _repr_html_(self) -> str:
        from multislice_nb.cloud.display import html_table

        return html_table(self._header(), self._cells(), caption=self._title())


def experiments(notebooks: Iterable[Notebook]) -> Table:
    """The experiment notebooks that there are."""
    rows = [
        (one.name, one.title, ", ".join(f"{key}={default}" for key, default in one.parameters.items()))
        for one in notebooks
    ]
    return Table(("name", "title", "parameters"), tuple(rows), empty="There are no experiment notebooks.")


def _first_line(cloud: Cloud) -> str:
    return str(cloud).splitlines()[0]


def timeline_text(changes: tuple[StateChange, ...]) -> str:
    """`WAITING_FOR_RESOURCES 0.4 s → PROVISIONING 0.9 s → ACTIVE`."""
    parts = []
    for change, after in zip(changes, [*changes[1:], None], strict=True):
        time = f" {lasted((after.at - change.at).total_seconds())}" if after is not None else ""
        parts.append(f"{change.state}{time}")
    return " → ".join(parts)
