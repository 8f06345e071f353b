"""The configurations of a sweep, checked and in the order in which they run."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING

from multislice_nb.errors import InvalidRequestError
from multislice_nb.experiments.configuration import Configuration
from multislice_nb.experiments.workload import MLP, check
from multislice_nb.sharding import Parallelism, parse_strategy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from multislice_nb.experiments.rows import Place
    from multislice_nb.experiments.training import Options
    from multislice_nb.experiments.workload import Workload


def grid(
    strategies: Iterable[str | Parallelism],
    batch_sizes: Iterable[int],
    workloads: Iterable[Workload],
    options: Iterable[Options],
    places: Sequence[Place],
    *,
    steps: int,
    warmup: int,
) -> list[Configuration]:
    """All combinations, each once, the cheapest of every strategy first.

    A strategy that does not work at all is thus found in the first seconds, and one that runs out of memory is
    found at its smallest batch that does.

    Raises:
        ParallelismError: A strategy does not fit the slices or the workload.
        InvalidRequestError: A name, size or number cannot be, or there is nothing to measure.
    """
    one_place = len(places) == 1
    chosen = [
        _resolve(strategy, place, named_by_slices=one_place)
        for strategy, place in itertools.product(_strategies(strategies), places)
    ]
    models = list(workloads)
    for model, (_, parallelism) in itertools.product(models, chosen):
        check(model, parallelism)
    points = [
        Configuration(
            strategy=name,
            parallelism=parallelism,
            batch_per_device=batch,
            workload=model,
            options=option,
            steps=steps,
            warmup=warmup,
        )
        for batch, model, option, (name, parallelism) in itertools.product(
            _listed(batch_sizes), models, list(options), chosen
        )
    ]
    if not points:
        raise InvalidRequestError(
            "There is nothing to measure.", fix="Give at least one strategy and one batch size."
        )
    unique: dict[str, Configuration] = {}
    for point in points:
        unique.setdefault(point.key(), point)  # two names may mean the same
    return sorted(unique.values(), key=_cost)


def _resolve(strategy: str | Parallelism, place: Place, *, named_by_slices: bool) -> tuple[str, Parallelism]:
    """A strategy's name and degrees. On several numbers of slices it is one line in a figure, so one name."""
    if isinstance(strategy, str):
        return strategy, parse_strategy(strategy, place.devices_per_slice, place.slices)
    resolved = strategy.resolve(place.devices_per_slice, place.slices)
    named = resolved if named_by_slices else dataclasses.replace(resolved, dcn_data=1)
    return named.name, resolved


def _cost(point: Configuration) -> tuple[float, int]:
    """FLOPs of a device, then how many slices join."""
    return point.workload.matmul_flops(point.batch_per_device), point.slices


def subsets(slices: int | Iterable[int] | None, place: Place) -> list[Place]:
    """The first so many slices of a cluster, for each number asked for; all of it for None.

    Raises:
        InvalidRequestError: It does not have so many.
    """
    if slices is None:
        return [place]
    counts = _listed(slices)
    for count in counts:
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= place.slices:
            raise InvalidRequestError(
                f"slices is {count!r}; {place.cluster} has {place.slices}.",
                fix="Give numbers that it has, or sweep on clusters of other sizes into the same file (path).",
            )
    return [place.first(count) for count in sorted(set(counts))]


def _strategies(given: str | Parallelism | Iterable[str | Parallelism]) -> list[str | Parallelism]:
    """A single one is a list of one: a string is not its letters."""
    return [given] if isinstance(given, (str, Parallelism)) else list(given)


def _listed(given: int | Iterable[int]) -> list[int]:
    """A single number is a list of one, and so is what is no number and will be refused as one."""
    return list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]


def mlps(embedding: int | Sequence[int], layers: int | Sequence[int]) -> list[Workload]:
    """The MLP in all given sizes.

    Raises:
        InvalidRequestError: A size is not a positive integer.
    """
    sizes = itertools.product(_listed(embedding), _listed(layers))
    return [MLP(embedding=width, layers=depth) for width, depth in sizes]
