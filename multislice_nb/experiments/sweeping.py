"""Measure every combination of strategies and batch sizes on live workers, row by row into a file.

The workers keep running between configurations, so that a configuration costs its compilation and its steps and
no start of JAX. What is in the file is not measured again: a sweep that was stopped goes on where it was.
"""

from __future__ import annotations

import datetime as dt
from contextlib import aclosing, closing
from pathlib import Path
from typing import TYPE_CHECKING

from multislice_nb import _portal
from multislice_nb.errors import ExperimentError
from multislice_nb.experiments import jsonlines
from multislice_nb.experiments.live import sweep_shower
from multislice_nb.experiments.request import SweepRequest
from multislice_nb.experiments.results import Results
from multislice_nb.experiments.running import Run
from multislice_nb.experiments.training import Options

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from multislice_nb.experiments.gang import Gang
    from multislice_nb.experiments.progress import SweepProgress
    from multislice_nb.experiments.workload import Workload
    from multislice_nb.sharding import Parallelism


async def asweep(
    request: SweepRequest, *, cluster: Gang | str | None = None, path: Path | str | None = None
) -> AsyncGenerator[SweepProgress, None]:
    """The sweep as an asynchronous generator: how far it is, before the first measurement and after each.

    Closing it stops the sweep; what was measured is in the file.

    Args:
        request: What to measure.
        cluster: The workers, or the name of an attached cluster; None for the current one.
        path: The results file; one that exists is continued. None for a new one in the folder `sweeps`.

    Raises:
        ParallelismError: A strategy does not fit the slices or the workload. Nothing has run.
        InvalidRequestError: A name, size or number cannot be. Nothing has run.
        ExperimentError: The file cannot be read or written, or one configuration after another fails.
        ClusterError: The workers do not answer, or could not be started again.
    """
    gang = _attached(cluster) if cluster is None or isinstance(cluster, str) else cluster
    results = _open(path, gang)
    jsonlines.check_writable(results.path)
    run = await Run.begin(request, gang)
    async with aclosing(run.progress(results)) as steps:
        async for progress in steps:
            yield progress


def sweep(
    strategies: Sequence[str | Parallelism],
    batch_sizes: Sequence[int],
    *,
    embedding: int | Sequence[int] = 2048,
    layers: int | Sequence[int] = 4,
    workloads: Sequence[Workload] | None = None,
    options: Options | Sequence[Options] | None = None,
    slices: int | Sequence[int] | None = None,
    steps: int = 10,
    warmup: int = 1,
    target_spread: float | None = None,
    max_steps: int = 100,
    adaptive: bool = True,
    compile_ahead: bool | None = None,
    timeout: float = 900.0,
    memory_limit: int | None = None,
    cluster: Gang | str | None = None,
    path: Path | str | None = None,
    progress: Callable[[SweepProgress], None] | None = None,
) -> Results:
    """Measure TFLOP/s per chip for every combination of strategies and batch sizes on the attached workers.

    Interrupting it keeps what was measured; the same call with the same `path` goes on from there.

    Args:
        strategies: Names, as in `fsdp` or `fsdp+tensor`, or `Parallelism`s.
        batch_sizes: Rows of the batch per JAX device (weak scaling).
        embedding: Width of the MLP; several for a grid.
        layers: Depth of the MLP; several for a grid.
        workloads: Models to measure instead of the MLP.
        options: Optimiser, rematerialisation and donation; several for a grid.
        slices: How many slices take part, the first so many while the others are idle; several for weak scaling.
            None for all. Clusters of several sizes can be swept one after the other into the same `path` instead.
        steps: Steps timed in a round, each until its result is there.
        warmup: Steps run before each round.
        target_spread: Repeat rounds until half the interquartile range is at most this share of the median.
        max_steps: No further round once this many steps were timed.
        adaptive: Do not try a larger batch of what ran out of memory.
        compile_ahead: Compile the next configuration while one is timed; None for on TPUs only.
        timeout: Seconds that one round may take, compilation included.
        memory_limit: Bytes that all devices together may need, where workers share one machine.
        cluster: The workers, or the name of an attached cluster; None for the current one.
        path: The results file; one that exists is continued. None for a new one in the folder `sweeps`.
        progress: Called in this thread with how far the sweep is. None for
            a line and a chart that are updated in place where somebody watches, and a line for each row elsewhere.

    Returns:
        The results in the file.

    Raises:
        MultisliceError: As `asweep` says.
    """
    request = SweepRequest(
        strategies=strategies,
        batch_sizes=batch_sizes,
        embedding=embedding,
        layers=layers,
        workloads=workloads,
        options=Options() if options is None else options,
        slices=slices,
        steps=steps,
        warmup=warmup,
        target_spread=target_spread,
        max_steps=max_steps,
        adaptive=adaptive,
        compile_ahead=compile_ahead,
        timeout=timeout,
        memory_limit=memory_limit,
    )
    return run_request(request, cluster=cluster, path=path, progress=progress)


def run_request(
    request: SweepRequest,
    *,
    cluster: Gang | str | None = None,
    path: Path | str | None = None,
    progress: Callable[[SweepProgress], None] | None = None,
) -> Results:
    """`sweep` for a request made before, such as one read from a file."""
    show = progress or sweep_shower()
    results: Results | None = None
    try:
        with closing(_portal.iterate(asweep, request, cluster=cluster, path=path)) as steps:
            for step in steps:
                results = step.results
                show(step)
    except KeyboardInterrupt as stop:
        if results is not None:
            stop.add_note(f"{len(results)} measurements are kept; go on with path={str(results.path)!r}.")
        raise
    if results is None:
        raise ExperimentError("The sweep ended before it began.", fix="Run it again.")
    return results


def _attached(name: str | None) -> Gang:
    from multislice_nb.cluster import attached

    gang: Gang = attached(name)
    return gang


def _open(path: Path | str | None, gang: Gang) -> Results:
    if path is None:
        now = dt.datetime.now(dt.UTC).strftime("%Y%m%d-%H%M%S-%f")
        return Results(Path("sweeps") / f"{gang.name}-{now}.jsonl")
    return Results.load(path) if Path(path).exists() else Results(path)
