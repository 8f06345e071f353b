"""Plans of the workloads that sweeps measure: the same step, lowered for a TPU that is not there.

```python
ms.plan(accelerator_type="v4-16", slices=2, strategy="fsdp", batch=131072, embedding=2048)
```
"""

from __future__ import annotations

import dataclasses
from numbers import Integral
from typing import TYPE_CHECKING, Any

from multislice_nb import sharding, tpu
from multislice_nb.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from multislice_nb.experiments.training import Options
    from multislice_nb.experiments.workload import Workload
    from multislice_nb.sharding import LargestBatch, Parallelism, Plan, Plans

__all__ = ["compare_plans", "largest_batch", "plan"]


def plan(
    workload: Workload | None = None,
    *,
    accelerator_type: str | tpu.AcceleratorType,
    slices: int = 1,
    strategy: str | Parallelism = "fsdp",
    batch: int,
    embedding: int = 2048,
    layers: int = 4,
    options: Options | None = None,
    largest: bool = False,
    **planning: Any,
) -> Plan:
    """What XLA's TPU compiler makes of a training step, on a machine without a TPU.

    Args:
        workload: The model; an MLP of `embedding` and `layers` when left out.
        accelerator_type: Of each slice, such as v4-16.
        slices: How many.
        strategy: A name such as fsdp, or a parallelism.
        batch: Rows of the batch per device.
        embedding: Features of the MLP's tokens.
        layers: Layers of the MLP.
        options: How it is trained.
        largest: Look for the largest batch that fits too, as `largest_batch` does, which takes ten times as long.
        **planning: Further options of `multislice_nb.sharding.plan`.

    Raises:
        AcceleratorTypeError: If there is no such slice.
        ParallelismError: If the strategy fits neither the slices nor the model.
        InvalidRequestError: If the batch is empty.
        PlanError: If it does not compile, or the largest batch cannot be told.
    """
    model = _workload(workload, embedding, layers)
    _check(model, accelerator_type, slices, strategy, batch)
    asked: dict[str, Any] = {
        "accelerator_type": accelerator_type,
        "slices": slices,
        "strategy": strategy,
        **_described(model, options),
        **planning,
    }
    bounds = sharding.largest_batch(_program(model, options), **asked) if largest else None
    return dataclasses.replace(sharding.plan(_program(model, options), batch=batch, **asked), largest=bounds)


def largest_batch(
    workload: Workload | None = None,
    *,
    accelerator_type: str | tpu.AcceleratorType,
    slices: int = 1,
    strategy: str | Parallelism = "fsdp",
    embedding: int = 2048,
    layers: int = 4,
    options: Options | None = None,
    **planning: Any,
) -> LargestBatch:
    """The largest batch per device that fits, and where rematerialisation begins; arguments as of `plan`."""
    model = _workload(workload, embedding, layers)
    _check(model, accelerator_type, slices, strategy)
    return sharding.largest_batch(
        _program(model, options),
        accelerator_type=accelerator_type,
        slices=slices,
        strategy=strategy,
        **_described(model, options) | planning,
    )


def compare_plans(
    workload: Workload | None = None,
    *,
    accelerator_type: str | tpu.AcceleratorType,
    slices: int = 1,
    strategies: Iterable[str | Parallelism] | None = None,
    batches: Iterable[int],
    embedding: int = 2048,
    layers: int = 4,
    options: Options | None = None,
    **planning: Any,
) -> Plans:
    """Plans for several strategies and batches; by default all strategies that the overview does not advise against."""
    model = _workload(workload, embedding, layers)
    chosen = list(
        strategies
        or sharding.enumerate_strategies(accelerator_type, slices, advised=True, splits=model.splits)
    )
    batches = list(batches)
    for strategy in chosen:
        for batch in batches:
            _check(model, accelerator_type, slices, strategy, batch)
    return sharding.compare_plans(
        _program(model, options),
        accelerator_type=accelerator_type,
        slices=slices,
        strategies=chosen,
        batches=batches,
        **_described(model, options) | planning,
    )


def _program(workload: Workload, options: Options | None) -> Callable[..., Any]:
    from multislice_nb.experiments.training import program

    return program(workload, options)


def _workload(workload: Workload | None, embedding: int, layers: int) -> Workload:
    from multislice_nb.experiments.workload import MLP

    return workload or MLP(embedding=embedding, layers=layers)


def _check(
    workload: Workload,
    accelerator_type: str | tpu.AcceleratorType,
    slices: int,
    strategy: str | Parallelism,
    batch: int = 1,
) -> None:
    """Refuse what the mesh axes do not divide, and a batch of nothing, before a process is started."""
    from multislice_nb.experiments.workload import check

    if not isinstance(batch, Integral) or batch < 1:
        raise InvalidRequestError(
            f"A batch cannot have {batch!r} rows per device.", fix="Give a whole number, 1 or more."
        )
    devices = tpu.AcceleratorType.parse(accelerator_type).device_count
    check(workload, sharding.parse_strategy(strategy, devices, slices))


def _described(workload: Workload, options: Options | None) -> dict[str, Any]:
    """The title of a plan and, where there is one, the closed form of the model."""
    settings = {name: value for name, value in workload.settings.items() if name != "dtype"}
    title = ", ".join([workload.name, *(f"{name} {value}" for name, value in settings.items())])
    remat = options is not None and options.remat
    if remat:
        title += ", layers computed again"
    if workload.name != "mlp":
        return {"title": title, "remat": remat}
    embedding, layers = int(settings["embedding"]), int(settings["layers"])
    return {"title": title, "remat": remat, "model": sharding.Model.mlp(embedding, layers)}
