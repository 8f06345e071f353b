"""Workers as HTML: a legend, those that stand out, one in detail, and a still picture of all; everything escaped."""

from __future__ import annotations

import collections
import html
import time
from typing import TYPE_CHECKING

from multislice_nb.cloud.times import short
from multislice_nb.cluster.transfer import size_text
from multislice_nb.widgets.style import look_of, state_html
from multislice_nb.widgets.tables import table_html

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from multislice_nb.cluster import WorkerUsage
    from multislice_nb.widgets.snapshot import ClusterLook, WorkerLook

__all__ = ["FILLS", "grid_html", "legend_html", "levels", "one_html", "stand_out", "table"]

_ALL = 16
"""Up to so many workers are all in the table; of more, those that stand out."""
_ROWS = 8
_LEVELS = 8

FILLS: dict[str, Callable[[WorkerUsage], float | None]] = {
    "HBM in use": lambda use: use.hbm_used / use.hbm_total if use.hbm_total else None,
    "duty cycle": lambda use: None if use.duty_cycle is None else use.duty_cycle / 100,
    "memory in use": lambda use: use.memory / use.memory_total if use.memory_total else None,
    "CPU": lambda use: None if use.cpu_percent is None else use.cpu_percent / (100 * use.cpus),
}
"""What a cell of the grid can be filled with, each as a share of all there is; None where it is not known."""


def levels(usage: Mapping[int, WorkerUsage], fill: str) -> dict[int, int]:
    """By rank, how high its cell is filled, in eighths; what is in use at all is seen."""
    found = {}
    for rank, use in usage.items():
        share = FILLS[fill](use) if fill in FILLS else None
        if share is not None and share > 0:
            found[rank] = min(_LEVELS, max(1, round(share * _LEVELS)))
    return found


def legend_html(cluster: ClusterLook, usage: Mapping[int, WorkerUsage]) -> str:
    """The cluster in a line, its workers counted by state, and the range of what is used."""
    counts = collections.Counter(worker.state for worker in cluster.workers)
    states = "".join(
        f'<span>{state_html(state)}<b class="msnb-count">{count}</b></span>'
        for state, count in counts.items()
    )
    ranges = " · ".join(_ranges(list(usage.values())))
    # States are announced when they change; what is used changes all the time, and is there to be read.
    return (
        f'<div class="msnb"><p><b>{html.escape(cluster.name)}</b> '
        f'<span class="msnb-muted">{html.escape(cluster.summary)}</span></p>'
        f'<div class="msnb-path"><span class="msnb-path msnb-flat" role="status" aria-live="polite">{states}</span>'
        f'<span class="msnb-muted">{html.escape(ranges)}</span></div></div>'
    )


def _ranges(uses: Sequence[WorkerUsage]) -> Iterable[str]:
    hbm = [use.hbm_used / 2**30 for use in uses if use.devices]
    if hbm:
        whole = max(use.hbm_total for use in uses) / 2**30
        yield f"HBM {_between(hbm, '.1f')} of {whole:.1f} GiB a worker"
    duty = [use.duty_cycle for use in uses if use.duty_cycle is not None]
    if duty:
        yield f"duty cycle {_between(duty, '.0f')} %"
    if uses and not hbm:
        memory = sorted(use.memory for use in uses)
        yield f"memory {_words(size_text(memory[0]), size_text(memory[-1]))} a worker"
        cpu = [use.cpu_percent for use in uses if use.cpu_percent is not None]
        if cpu:
            yield f"CPU {_between(cpu, '.0f')} %"


def _between(numbers: Sequence[float], form: str) -> str:
    return _words(format(min(numbers), form), format(max(numbers), form))


def _words(least: str, most: str) -> str:
    return least if least == most else f"{least} – {most}"


def stand_out(workers: Sequence[WorkerLook], usage: Mapping[int, WorkerUsage]) -> dict[int, str]:
    """By rank, why a worker deserves a look: lost, behind the others, silent for longest, or extreme in its use."""
    if len(workers) <= _ALL:
        return {worker.rank: "" for worker in workers}
    found: dict[int, str] = {}
    usual = {"ready", "running", "READY"}
    for worker in sorted(workers, key=lambda one: (one.state == "behind", one.rank)):
        if worker.state not in usual:
            found[worker.rank] = worker.state
    silent = [worker for worker in workers if worker.state in {"running", "behind"} and worker.said_at]
    if silent:
        quietest = min(silent, key=lambda one: one.said_at or 0.0)
        found.setdefault(quietest.rank, "silent for longest")
    for name, of in FILLS.items():
        shares = {rank: share for rank, use in usage.items() if (share := of(use)) is not None}
        if shares and max(shares.values()) > min(shares.values()):
            found.setdefault(max(shares, key=lambda rank: shares[rank]), f"most {name}")
            found.setdefault(min(shares, key=lambda rank: shares[rank]), f"least {name}")
    return dict(list(found.items())[:_ROWS])


def table(cluster: ClusterLook, usage: Mapping[int, WorkerUsage], chosen: int) -> str:
    """The few workers there are, or those of many that stand out; nothing where nobody does."""
    why = stand_out(cluster.workers, usage)
    if not why:
        return ""
    on_tpu = any(use.devices for use in usage.values())
    host = ["Memory", "CPU", "Last output"] if cluster.attached else ["Address"]
    columns = ["State", "Worker", "Node", *(["HBM", "Duty cycle"] if on_tpu else []), *host]
    by_rank = {worker.rank: worker for worker in cluster.workers}
    columns += ["Why"] if any(why[rank] != by_rank[rank].state for rank in why if why[rank]) else []
    rows = [
        (rank == chosen, _row(by_rank[rank], usage.get(rank), columns, reason))
        for rank, reason in sorted(why.items())
    ]
    caption = "Workers" if len(cluster.workers) <= _ALL else "Workers that stand out"
    title = "" if len(cluster.workers) <= _ALL else f'<p class="msnb msnb-title">{caption}</p>'
    return title + table_html(caption, columns, rows)


def _row(worker: WorkerLook, use: WorkerUsage | None, columns: Sequence[str], why: str) -> list[str]:
    cells = {
        "State": state_html(worker.state),
        "Worker": html.escape(worker.name),
        "Node": html.escape(worker.node_id),
        "Address": html.escape(worker.address),
        "HBM": _bar(FILLS["HBM in use"](use), f"{use.hbm_used / 2**30:.1f} GiB") if use else "",
        "Duty cycle": _percent(use, "duty cycle") if use else "",
        "Memory": html.escape(size_text(use.memory)) if use else "",
        "CPU": "" if use is None or use.cpu_percent is None else f"{use.cpu_percent:.0f} %",
        "Last output": _said(worker),
        "Why": html.escape(why),
    }
    return [cells[column] for column in columns]


def _percent(use: WorkerUsage, name: str) -> str:
    share = FILLS[name](use)
    return "" if share is None else _bar(share, f"{100 * share:.0f} %")


def _bar(share: float | None, text: str) -> str:
    width = 0 if share is None else min(100, max(0, round(100 * share)))
    return (
        f'<span class="msnb-bar" aria-hidden="true"><i style="width:{width}%"></i></span>{html.escape(text)}'
    )


def _said(worker: WorkerLook) -> str:
    if worker.said_at is None:
        return '<span class="msnb-muted">–</span>'
    ago = short(max(0.0, time.time() - worker.said_at))
    return (
        f'<span class="msnb-said">{html.escape(worker.said)}</span> <span class="msnb-muted">{ago} ago</span>'
    )


def one_html(worker: WorkerLook, use: WorkerUsage | None, silent: str, log: str, place: str) -> str:
    """One worker: what it is, what it uses, and the end of its log.

    Args:
        worker: Which one.
        use: How much of it is used, if that is known.
        silent: Why it is not.
        log: The end of its log.
        place: The log's file; empty where there is none.
    """
    facts = [worker.node_id, worker.address, *([str(use)] if use else []), *([silent] if silent else [])]
    body = html.escape(log) if log else "Nothing was printed on this worker yet."
    shown = (
        f'<div class="msnb-code msnb-log" tabindex="0" role="log" aria-label="Log of {html.escape(worker.name)}">{body}</div>'
        f'<p class="msnb-muted msnb-path">{html.escape(place)}</p>'
        if place
        else '<p class="msnb-muted">Its log is kept once somebody is attached.</p>'
    )
    return (
        f'<div class="msnb"><p class="msnb-line"><span class="msnb-line" role="status">{state_html(worker.state)} '
        f'<b>{html.escape(worker.name)}</b></span><span class="msnb-muted">{html.escape(" · ".join(facts))}</span></p>{shown}</div>'
    )


def grid_html(cluster: ClusterLook) -> str:
    """A still picture of all workers, a group for each slice, for pages on which nothing moves."""
    slices: dict[int, list[str]] = {}
    many = len(cluster.workers)
    size = 16 if many <= 64 else 11 if many <= 512 else 9
    for worker in cluster.workers:
        look = look_of(worker.state)
        title = html.escape(f"{worker.name}: {worker.state} · {worker.node_id} · {worker.address}")
        slices.setdefault(worker.slice_id, []).append(
            f'<svg class="msnb-{look.tone}" viewBox="0 0 12 12" width="{size}" height="{size}" role="img" '
            f'aria-label="{title}"><title>{title}</title>{look.shape}</svg>'
        )
    lines = "".join(_slice(slice_id, cells) for slice_id, cells in slices.items())
    wide = " msnb-flow" if len(slices) > 16 else ""
    return (
        f"{legend_html(cluster, {})}"
        f'<div class="msnb msnb-scroll msnb-grid{wide}" role="group" aria-label="Workers of {html.escape(cluster.name)}">{lines}</div>'
    )


def _slice(slice_id: int, cells: Sequence[str]) -> str:
    first = slice_id * len(cells)
    ranks = f"{first}" if len(cells) == 1 else f"{first}–{first + len(cells) - 1}"
    return (
        f'<div class="msnb-slice"><span>slice {slice_id} · {ranks}</span>'
        f'<div class="msnb-cells">{"".join(cells)}</div></div>'
    )
