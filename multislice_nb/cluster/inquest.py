"""Why an operation did not end well: from the workers' disks, their logs, and the Cloud TPU API."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from multislice_nb.cluster.gang import State
from multislice_nb.cluster.keeper import Gone
from multislice_nb.cluster.report import result_of, with_endings, with_gone, with_stacks

if TYPE_CHECKING:
    from multislice_nb.cluster.formation import Formation
    from multislice_nb.cluster.gang import Gang, Record
    from multislice_nb.cluster.health import Health
    from multislice_nb.cluster.result import CellResult

__all__ = ["BROKEN", "advice", "inquest", "offer"]

BROKEN = frozenset({State.LOST, State.GONE, State.KILLED, State.STUCK})
"""States of a worker after which the gang cannot go on as it was."""

_ENDED = frozenset({State.LOST, State.GONE})
_BLOCKED = frozenset({State.STUCK, State.KILLED})


def offer(name: str) -> str:
    """How a gang is started anew."""
    return (
        f"Start the gang anew with %multislice restart {name} or cluster.restart(); variables on the workers are "
        "lost. With %config Multislice.gang_auto_restart = True it starts anew by itself."
    )


async def inquest(formation: Formation, gang: Gang, title: str, inquiry: float) -> CellResult:
    """What an operation left, with what can be found out about those that did not end by themselves.

    Args:
        formation: Where it ran.
        gang: The operation.
        title: What tracebacks call the cell.
        inquiry: Seconds after a loss for the Cloud TPU API to say why, and for workers now. Whatever has not
            answered by then is left out.
    """
    result = result_of(gang.records, formation.site.workers)
    ended, blocked = _in(gang, _ENDED), _in(gang, _BLOCKED)
    if not (ended or blocked):
        return result
    engines, keeper = formation.engines, formation.keeper
    reachable = [rank for rank in ended if rank not in keeper.gone]
    since = time.time() - min((gang.records[rank].ended for rank in ended), default=time.time())
    stacks, endings, health = await asyncio.gather(
        engines.stacks(blocked, deadline=inquiry),
        engines.endings(reachable, deadline=inquiry),
        keeper.inquired(time.monotonic() + inquiry - since) if ended else _nothing(),
    )
    result = with_stacks(result, stacks, title)
    result = with_endings(result, endings)
    reasons = {
        rank: reason
        for rank, record in gang.records.items()
        if record.state in _ENDED and (reason := _reason(formation, record, health))
    }
    first = {
        why: min(gang.records[r].ended for r in reasons if reasons[r] == why) for why in reasons.values()
    }
    gone = {rank: str(Gone(reason, first[reason])) for rank, reason in reasons.items()}
    result = with_gone(result, gone)
    if gone:
        return replace(result, after=advice(formation.site.name, health))
    return replace(result, after=offer(formation.site.name))


def _in(gang: Gang, states: frozenset[State]) -> list[int]:
    return [rank for rank, record in gang.records.items() if record.state in states]


async def _nothing() -> None:
    return None


def _reason(formation: Formation, record: Record, health: Health | None) -> str:
    """What happened to a worker's VM; empty where it stands and only the process ended."""
    worker, keeper = formation.site.workers[record.rank], formation.keeper
    if health is not None and (told := health.trouble(worker.slice_id)):
        return told
    if worker.rank in keeper.gone:
        return keeper.gone[worker.rank].reason
    if worker.rank in keeper.outages:
        return f"node {worker.node_id} does not answer"
    return record.reason if record.state is State.GONE else ""


def advice(name: str, health: Health | None) -> str:
    """What to do next when a VM is gone, from what the Cloud TPU API says, if it does."""
    if health is not None:
        return health.advice
    return f"When its slices are READY, attach again with %multislice attach {name} --recover, which waits for that."
