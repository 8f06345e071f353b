"""Finding what was forgotten: dead requests that hold quota, what outlived its time or its notebook.

Looking deletes nothing. What is found is shown with its reason and the chips it holds, and `sweep` deletes
what the user confirms.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from multislice_nb._portal import sync
from multislice_nb.cloud.cost import usage
from multislice_nb.cloud.display import counted, html_table, shouted, text_table
from multislice_nb.cloud.janitor import is_there
from multislice_nb.cloud.provider import REQUEST_LABEL
from multislice_nb.cloud.queued_resource import QueuedResource
from multislice_nb.errors import CloudError, MultisliceError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from multislice_nb.cloud.ledger import Entry
    from multislice_nb.cloud.session import Cloud
    from multislice_nb.cloud.status import NodeStatus, QueuedResourceStatus

__all__ = ["Finding", "Reclaimable", "look"]

_HEADER = ("name", "zone", "state", "why", "holds")


@dataclass(frozen=True, slots=True)
class Finding:
    """One queued resource that may be reclaimed.

    Attributes:
        status: What it is.
        reason: Why it is here.
        ours: Whether this tool created it.
        certain: Whether it can be of no use to anybody: dead or overdue. An orphan may still be at work.
        spent: Chip-hours so far, and cost where a price is known.
    """

    status: QueuedResourceStatus
    reason: str
    ours: bool
    certain: bool
    spent: str = ""

    @property
    def name(self) -> str:
        """Its name."""
        return self.status.name

    @property
    def holds(self) -> str:
        """The quota and chips it holds."""
        chips = self.status.chips
        quota = (
            f"1 queued resource, {chips} chips of {self.status.capacity} quota"
            if chips
            else "1 queued resource"
        )
        return f"{quota} · {self.spent}" if self.spent else quota

    def row(self) -> tuple[str, ...]:
        """Cells of a table."""
        return self.name, self.status.zone, self.status.state, self.reason, self.holds

    def __str__(self) -> str:
        return f"{self.name} ({self.status.zone}) {self.status.state}: {self.reason}; holds {self.holds}"


class Reclaimable:
    """What was found; nothing is deleted until `sweep` is called."""

    def __init__(self, cloud: Cloud, findings: Iterable[Finding], vanished: Iterable[Entry]) -> None:
        self._cloud = cloud
        self.findings = tuple(findings)
        self.vanished = tuple(vanished)

    @property
    def names(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(finding.name for finding in self.findings)

    @property
    def chips(self) -> int:
        """Chips they hold together."""
        return sum(finding.status.chips or 0 for finding in self.findings)

    def sweep(self, names: Iterable[str] | None = None) -> tuple[str, ...]:
        """Delete these, with their slices; those that are certainly of no use when None.

        Returns:
            The names of what is gone.

        Raises:
            MultisliceError: One could not be deleted; the others were all the same.
        """
        return sync(self.asweep, names)

    async def asweep(self, names: Iterable[str] | None = None) -> tuple[str, ...]:
        """Twin of `sweep`."""
        wanted = None if names is None else set(names)
        chosen = [f for f in self.findings if (f.certain if wanted is None else f.name in wanted)]
        outcomes = await asyncio.gather(*(self._delete(f.status) for f in chosen), return_exceptions=True)
        failed = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        if failed:
            raise CloudError.of_several("could not be deleted, the others were", failed)
        return tuple(finding.name for finding in chosen)

    async def _delete(self, found: QueuedResourceStatus) -> None:
        """Delete what was found; what got its name since then is something else, and stays."""
        try:
            now = await self._cloud.provider.get_queued_resource(found.name, found.zone)
        except NotFoundError:
            now = None
        if now is None or now.create_time != found.create_time:
            self._cloud.ledger.end_of(found)
        else:
            await QueuedResource(self._cloud, found).adelete()

    def __len__(self) -> int:
        return len(self.findings)

    def __repr__(self) -> str:
        return f"<Reclaimable {', '.join(self.names) or 'nothing'}>"

    def __str__(self) -> str:
        if not self.findings:
            return "Nothing to reclaim."
        held = (
            f"{counted(len(self.findings), 'queued resource')} with {counted(self.chips, 'chip')} of quota."
        )
        return f"{text_table(shouted(_HEADER), [finding.row() for finding in self.findings])}\n{held}"

    def _repr_html_(self) -> str:
        if not self.findings:
            return "<p>Nothing to reclaim.</p>"
        return html_table(_HEADER, [finding.row() for finding in self.findings])


async def look(cloud: Cloud, zone: str = "-") -> Reclaimable:
    """Compare the ledger with what the API lists, in all zones where anything of ours may be.

    What the ledger has and the API has not is struck out of the ledger: it is gone.
    """
    entries = [entry for entry in cloud.ledger.entries() if entry.project == cloud.project]
    statuses = cloud.ledger.observe(await cloud.provider.list_queued_resources(zone))
    nodes = await cloud.provider.list_nodes(zone)
    by_request = {entry.request_id: entry for entry in entries}
    there = {status.labels.get(REQUEST_LABEL) for status in statuses}
    gone = [e for e in entries if e.request_id not in there and zone in {"-", e.zone}]
    for entry in gone:
        if await _is_gone(cloud, entry):
            cloud.ledger.end(entry.request_id)
    findings = []
    for status in statuses:
        mine = by_request.get(status.labels.get(REQUEST_LABEL, ""))
        why = _reason(status, mine, [node for node in nodes if node.node_id in status.node_ids])
        if why is not None:
            spent = str(usage(status, cloud.ledger.timeline(status), mine.chip_hour_price if mine else None))
            findings.append(Finding(status, why[0], mine is not None, why[1], spent))
    return Reclaimable(cloud, findings, gone)


async def _is_gone(cloud: Cloud, entry: Entry) -> bool:
    """A list can leave out a zone that could not be reached: only a get proves it."""
    try:
        return not await is_there(cloud.provider, entry)
    except MultisliceError:
        return False


def _reason(
    status: QueuedResourceStatus, entry: Entry | None, nodes: list[NodeStatus]
) -> tuple[str, bool] | None:
    """Why it can be reclaimed and whether that is certain; None when it is well."""
    ready = sum(node.state == "READY" for node in nodes)
    overdue = entry.overdue() if entry else None
    orphaned = entry is not None and not entry.job and entry.owner_is_alive is False
    found: tuple[str, bool] | None = None
    if status.is_dead and ready:
        found = f"{status.state} with {ready} of {status.node_count} slices running", True
    elif status.is_dead:
        found = f"{status.state}, which holds its name and quota", True
    elif status.state in {"DELETING", "SUSPENDING"}:
        found = None
    elif overdue:
        found = overdue, True
    elif status.is_active and (any(node.is_lost for node in nodes) or len(nodes) < status.node_count):
        found = f"ACTIVE with {ready} of {status.node_count} slices running", False
    elif orphaned and entry is not None:
        found = f"the notebook that asked for it is gone (process {entry.owner_pid})", False
    return found
