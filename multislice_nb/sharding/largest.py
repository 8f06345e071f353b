"""The largest batch that fits, by asking the compiler again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from multislice_nb import tpu
from multislice_nb.errors import InvalidRequestError, PlanError
from multislice_nb.sharding import child
from multislice_nb.sharding.closed_forms import memory_bytes
from multislice_nb.sharding.naming import parse_strategy
from multislice_nb.sharding.planner import plan
from multislice_nb.sharding.plans import LargestBatch, Plan, Plans

if TYPE_CHECKING:
    from collections.abc import Callable

    from multislice_nb.sharding.model import Model
    from multislice_nb.sharding.parallelism import Parallelism

__all__ = ["largest_batch"]

_FIRST = 1024
_MOST = 2**40


def largest_batch(
    program: Callable[..., Any],
    *,
    accelerator_type: str | tpu.AcceleratorType,
    slices: int = 1,
    strategy: str | Parallelism = "fsdp",
    model: Model | None = None,
    start: int | None = None,
    resolution: float = 0.25,
    **options: Any,
) -> LargestBatch:
    """Bisect for the largest batch per device that fits, and for where rematerialisation begins.

    An answer of "does not fit" takes half a second, one of "fits" as long as compiling, 5 to 20 s; all of them
    are kept on disk.

    Args:
        program: A function of the mesh and of the batch per device; see `plan`.
        accelerator_type: Of each slice.
        slices: How many.
        strategy: A name or a parallelism.
        model: Where to begin is worked out from its closed form.
        start: Where to begin.
        resolution: How near the bounds come to each other, as a share of the lower, above 0 and up to 1; halving
            it costs one more compilation for each bound.
        **options: Those of `plan`.

    Raises:
        InvalidRequestError: If the resolution is no such share.
        PlanError: If libtpu is not installed, or even a batch of 1 does not fit.
    """
    if not 0 < resolution <= 1:
        raise InvalidRequestError(
            f"A resolution cannot be {resolution:g}.", fix="Give a share above 0 and up to 1, such as 0.25."
        )
    if not child.has_libtpu():
        raise PlanError(
            "Only the TPU compiler knows what fits, and libtpu is not installed.",
            fix="Install it with pip install 'multislice-nb[aot]'.",
        )
    shape = tpu.AcceleratorType.parse(accelerator_type)
    parallelism = parse_strategy(strategy, shape.device_count, slices)
    known: dict[int, Plan] = {}

    def ask(batch: int) -> Plan:
        if batch not in known:
            known[batch] = plan(
                program,
                accelerator_type=shape,
                slices=slices,
                strategy=parallelism,
                model=model,
                batch=batch,
                **options,
            )
        return known[batch]

    low, high = _bracket(ask, start or _guess(model, shape, parallelism))
    with child.together(2) as pool:
        fitting = pool.submit(_narrow, low, high, resolution, lambda batch: bool(ask(batch).fits))
        remat = pool.submit(_remat, ask, low, resolution)
        low, high = fitting.result()
        remat.result()
    plain = [batch for batch, one in known.items() if one.fits and not one.rematerialises]
    twice = [batch for batch, one in known.items() if one.fits and one.rematerialises]
    return LargestBatch(
        batch=low,
        too_large=high,
        remat_after=max(plain, default=0),
        remat_from=min(twice, default=None),
        plans=Plans(known[batch] for batch in sorted(known)),
    )


def _guess(model: Model | None, shape: tpu.AcceleratorType, parallelism: Parallelism) -> int:
    """The power of two at which the closed form still fits."""
    if model is None:
        return _FIRST
    limit = shape.generation.hbm_usable_bytes_per_chip / shape.generation.devices_per_chip
    batch = 1
    while batch < _MOST and memory_bytes(model, parallelism, 2 * batch) <= limit:
        batch *= 2
    return batch


def _bracket(ask: Callable[[int], Plan], batch: int) -> tuple[int, int]:
    """A batch that fits and one twice as large that does not."""
    if ask(batch).fits:
        while ask(2 * batch).fits and batch < _MOST:
            batch *= 2
        return batch, 2 * batch
    while not ask(batch).fits:
        if batch == 1:
            raise PlanError(
                "Not even a batch of 1 a device fits.",
                fix="Divide the parameters further, or take a larger slice.",
            )
        batch //= 2
    return batch, 2 * batch


def _narrow(low: int, high: int, resolution: float, holds: Callable[[int], bool]) -> tuple[int, int]:
    """Bounds of where something that holds at `low` stops to hold, `high` at the latest."""
    while high - low > max(1, resolution * low):
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high


def _remat(ask: Callable[[int], Plan], high: int, resolution: float) -> None:
    """Ask for batches around where rematerialisation begins, if it does before `high`."""
    if not ask(high).rematerialises:
        return
    low = high // 2
    while low > 0 and ask(low).rematerialises:
        high, low = low, low // 2
    _narrow(low, high, resolution, lambda batch: not ask(batch).rematerialises)
