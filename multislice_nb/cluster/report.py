"""From what a gang operation left to what a user reads."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from multislice_nb import errors
from multislice_nb.cluster.gang import State
from multislice_nb.cluster.inventory import ranks_text
from multislice_nb.cluster.result import CellResult, RemoteError, WorkerResult, unpack

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from multislice_nb.cluster.gang import Record
    from multislice_nb.cluster.inventory import Worker

__all__ = ["place", "result_of", "with_endings", "with_gone", "with_stacks", "worker_error"]

SAME_INSTANT = 1.0
"""Seconds by which a peer's error may be noted before the loss that caused it."""

VM_NOTICED = 10.0
"""The same where a whole VM is gone, which is noticed by its silence."""

HEADLINE = 300
"""Characters of a message in the first line about it; all of it comes with its traceback."""

OUT_OF_STEP = (
    "Variables are kept on all workers: mend the cell and run it again. If it waits then for the workers that were "
    "interrupted, they are out of step, as after a collective that others never joined: %multislice restart."
)

_RUNTIME_ERRORS = {"JaxRuntimeError", "XlaRuntimeError"}

GONE = "WorkerGone"
"""The name of an error that says that a worker's VM is gone, and the engine with it."""

_AFTER = {
    State.INTERRUPTED: ("Interrupted", "still running, and interrupted"),
    State.STUCK: ("Stuck", "still running, and did not take the interrupt"),
    State.KILLED: ("Killed", "still running, did not take the interrupt, and was killed"),
}


def result_of(records: Mapping[int, Record], workers: Sequence[Worker]) -> CellResult:
    """Freeze what a gang operation left, given what is known of it by rank."""
    by_rank = {worker.rank: worker for worker in workers}
    return CellResult(
        tuple(_worker_result(record, by_rank[rank]) for rank, record in sorted(records.items())),
        total=len(workers),
    )


def _worker_result(record: Record, worker: Worker) -> WorkerResult:
    reply = record.reply or {}
    shown = [m["data"] for m in record.messages if m["type"] == "execute_result"]
    return WorkerResult(
        worker=worker,
        value=unpack(reply.get("value")),
        value_text=shown[-1].get("text/plain", "") if shown else None,
        value_data=shown[-1] if shown else {},
        stdout=record.stdout.text,
        stderr=record.stderr.text,
        displays=tuple(m["data"] for m in record.messages if m["type"] != "execute_result"),
        error=_error(record, worker),
        seconds=reply.get("finished", 0.0) - reply.get("started", 0.0),
    )


def _error(record: Record, worker: Worker) -> RemoteError | None:
    told: dict[str, Any] = (record.reply or {}).get("error", {})
    place: dict[str, Any] = {key: told.get(key) for key in ("line_number", "line")}
    match record.state:
        case State.RUNNING | State.DONE:
            return None
        case State.GONE:
            return RemoteError(worker, GONE, record.reason, time=record.ended)
        case State.LOST:
            return RemoteError(
                worker, "WorkerLost", f"its process ended ({record.reason})", time=record.ended
            )
        case State.FAILED:
            time = (record.reply or {}).get("finished", record.ended)
            return RemoteError(
                worker, told["ename"], told["evalue"], **place, traceback=told["traceback"], time=time
            )
    ename, evalue = _AFTER[record.state]
    return RemoteError(
        worker,
        ename,
        evalue,
        **place,
        traceback=told.get("traceback", ""),
        time=record.ended,
        secondary=True,
    )


def with_stacks(result: CellResult, stacks: Mapping[int, str], cell: str) -> CellResult:
    """Say where in the cell the blocked workers are, from the stacks that faulthandler wrote.

    Args:
        result: Of a cell that left workers blocked.
        stacks: By rank, what faulthandler wrote; the last dump counts.
        cell: What tracebacks call the cell.
    """

    def placed(worker: WorkerResult) -> WorkerResult:
        text = stacks.get(worker.worker.rank, "")
        if worker.error is None or not text:
            return worker
        dump = text[text.rfind("Current thread") :] if "Current thread" in text else text
        return replace(worker, error=replace(worker.error, traceback=dump, **place(dump, cell)))

    return replace(result, workers=tuple(placed(worker) for worker in result.workers))


def with_endings(result: CellResult, endings: Mapping[int, str]) -> CellResult:
    """Say how the processes of lost workers ended.

    Args:
        result: Of a cell that lost workers.
        endings: By rank, when and how it ended in the first line, and the end of its log below.
    """

    def told(worker: WorkerResult) -> WorkerResult:
        first, _, log = endings.get(worker.worker.rank, "").partition("\n")
        if worker.error is None or not first:
            return worker
        # The true time of its end: peers in a collective may fail of it before the notebook hears of it.
        time, _, how = first.partition(" ")
        evalue = f"its process ended while it ran this: {how}"
        error = replace(worker.error, evalue=evalue, traceback=log.strip(), time=float(time))
        return replace(worker, error=error)

    return _with_followers(replace(result, workers=tuple(told(worker) for worker in result.workers)))


def with_gone(result: CellResult, gone: Mapping[int, str]) -> CellResult:
    """Say of which workers the VM is gone, given by rank what happened to it."""

    def told(worker: WorkerResult) -> WorkerResult:
        reason = gone.get(worker.worker.rank)
        if worker.error is None or reason is None:
            return worker
        ended = RemoteError(worker.worker, GONE, reason, time=worker.error.time)
        return replace(worker, error=ended)

    return _with_followers(replace(result, workers=tuple(told(worker) for worker in result.workers)))


def _with_followers(result: CellResult) -> CellResult:
    """Tell the errors of peers from the loss that caused them."""
    failed = [worker.error for worker in result.workers if worker.error is not None]
    times = [error.time for error in failed if error.ename == "WorkerLost"]
    times += [error.time - VM_NOTICED for error in failed if error.ename == GONE]
    if not times:
        return result
    return replace(result, workers=tuple(_follows(worker, min(times)) for worker in result.workers))


def _follows(worker: WorkerResult, loss: float) -> WorkerResult:
    """Mark what a collective says when its peer is gone: it comes in the same instant, but from the loss."""
    error = worker.error
    if (
        error is None
        or error.secondary
        or error.ename not in _RUNTIME_ERRORS
        or error.time < loss - SAME_INSTANT
    ):
        return worker
    return replace(
        worker, error=replace(error, secondary=True, evalue=f"{error.ename}: {error.evalue}"[:300])
    )


def place(dump: str, cell: str) -> dict[str, Any]:
    """The line of the cell in a dump, and the function it called; the innermost frame comes first."""
    called = None
    for match in re.finditer(r'File "(.*)", line (\d+) in (.*)', dump):
        file, line, function = match.groups()
        if file == cell:
            return {"line_number": int(line), "line": f"in {called}" if called else None}
        called = function
    return {}


def worker_error(result: CellResult) -> errors.WorkerError:
    """One exception for a cell that failed: the first failure in time, the others folded below it."""
    first = result.first_error
    if result.timed_out_after is not None or result.silent_for is not None:
        late = [e.worker.rank for e in result.errors if e is not None]
        where = f" on {ranks_text(late, total=result.total)}" if late else ""
        what = (
            f"The cell ran past its {result.timed_out_after:g} s{where} and was stopped."
            if result.timed_out_after is not None
            else f"No worker printed or ended for {result.silent_for:g} s; the cell was stopped{where}."
        )
        waiting = _waiting([e for e in result.errors if e is not None], result.total)
        error: errors.WorkerError = errors.CellTimeoutError("\n".join([what, *waiting]), fix=_fix(result))
    elif first is None:
        raise AssertionError("the cell did not fail")
    else:
        cls = errors.WorkerLostError if first.ename in {"WorkerLost", GONE} else errors.WorkerError
        error = cls(_what(result, first), fix=_fix(result))
    error.result = result
    return error


def _what(result: CellResult, first: RemoteError) -> str:
    failed = [error for error in result.errors if error is not None]
    own = [error for error in failed if not error.secondary]
    if first.ename == GONE:
        return _gone(own, failed, result.total)
    count = f", first of {len(own)} failures" if len(own) > 1 else ""
    # A traceback ends in the whole message, which may be long.
    said = first.evalue.partition("\n")[0][:HEADLINE] if first.traceback else first.evalue
    lines = [f"{first.ename} on {first.worker}{count}" + (f": {said}" if said else "")]
    if first.traceback:
        lines += ["    " + line for line in first.traceback.rstrip().splitlines()]
    elif first.line_number is not None:
        lines.append(f"    line {first.line_number}: {first.line}")
    others = [error for error in own if error is not first]
    lines += _folded(others, result.total)
    lines += _waiting(failed, result.total)
    return "\n".join(lines)


def _gone(own: Sequence[RemoteError], failed: Sequence[RemoteError], total: int) -> str:
    """Who is gone and why, then other failures, then who was stopped for it."""
    lines = []
    reasons: dict[str, list[RemoteError]] = {}
    for error in own:
        if error.ename == GONE:
            reasons.setdefault(error.evalue, []).append(error)
    for reason, those in reasons.items():
        who = str(those[0].worker) if len(those) == 1 else ranks_text(e.worker.rank for e in those)
        lines.append(f"{who.capitalize()} {'is' if len(those) == 1 else 'are'} gone: {reason}.")
    lines += _folded([error for error in own if error.ename != GONE], total)
    stopped = [error.worker.rank for error in failed if error.secondary]
    if stopped:
        lines[-1] += f" The cell was stopped on {ranks_text(stopped)}."
    return "\n".join(lines)


def _same(error: RemoteError) -> str:
    return error.message.partition("\n")[0][:200]


def _folded(others: Sequence[RemoteError], total: int) -> list[str]:
    groups: dict[str, list[int]] = {}
    for error in others:
        groups.setdefault(_same(error), []).append(error.worker.rank)
    return [f"Also on {ranks_text(ranks, total=total)}: {text}" for text, ranks in groups.items()]


def _waiting(failed: Sequence[RemoteError], total: int) -> list[str]:
    groups: dict[tuple[str, str], list[int]] = {}
    for error in failed:
        if error.secondary:
            where = f" at line {error.line_number} ({error.line})" if error.line_number else ""
            groups.setdefault((error.evalue, where), []).append(error.worker.rank)
    return [
        f"{ranks_text(ranks, total=total).capitalize()}{where}: {text}."
        for (text, where), ranks in groups.items()
    ]


def _fix(result: CellResult) -> str:
    if result.after:
        return result.after
    names = {error.ename for error in result.errors if error is not None}
    if len(names) > 1 and "Interrupted" in names:
        return OUT_OF_STEP
    return "Variables are kept on all workers: mend the cell and run it again."
