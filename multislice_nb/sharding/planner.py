"""Asks the real TPU compiler, on a machine without a TPU: does it fit, what runs, and what moves where."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from multislice_nb import tpu
from multislice_nb.sharding import child
from multislice_nb.sharding.calibration import Calibration
from multislice_nb.sharding.closed_forms import memory_bytes, traffic
from multislice_nb.sharding.compiling import CompileRequest
from multislice_nb.sharding.cost import predict
from multislice_nb.sharding.naming import parse_strategy
from multislice_nb.sharding.plans import Plan, Plans
from multislice_nb.sharding.programs import described, packed, with_arguments
from multislice_nb.sharding.schedule import simulate
from multislice_nb.sharding.strategies import enumerate_strategies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from multislice_nb.sharding.cost import Prediction
    from multislice_nb.sharding.model import Model
    from multislice_nb.sharding.parallelism import Parallelism

__all__ = ["compare_plans", "plan"]

_TIMEOUT = 900.0  # seconds; the largest topologies were seen to take 20


def plan(
    program: Callable[..., Any],
    *,
    accelerator_type: str | tpu.AcceleratorType,
    slices: int = 1,
    strategy: str | Parallelism = "fsdp",
    batch: int | None = None,
    args: tuple[Any, ...] | None = None,
    specs: Any = None,
    model: Model | None = None,
    remat: bool = False,
    title: str = "",
    generation: tpu.Generation | None = None,
    calibration: Calibration | None = None,
    cache: bool = True,
    timeout: float = _TIMEOUT,
) -> Plan:
    """Compile a training step for slices that need not exist.

    With libtpu installed (`pip install multislice-nb[aot]`) XLA's own TPU compiler answers: peak HBM, FLOPs,
    rematerialisation, and each transfer over ICI and DCN. Without it FLOPs come from the CPU compiler and bytes
    and memory from closed forms of `model`, which the plan says.

    Args:
        program: Either a function of the mesh (axes data, fsdp, tensor), and of the batch if one is given, that
            returns a jitted function and a tuple of its arguments as `jax.ShapeDtypeStruct`s with shardings; or,
            with `args`, a jitted function.
        accelerator_type: Of each slice, such as v4-16; TPU7x too.
        slices: How many.
        strategy: A name such as fsdp, or a parallelism.
        batch: Examples per device, handed to `program`.
        args: Arguments of a jitted function: arrays, random keys, shapes or numbers.
        specs: Partition specs of `args`, if their shardings do not say.
        model: What closed forms need, for a machine without libtpu.
        remat: Whether the program computes layers again in the pass backward, which closed forms have to be told.
        title: What the plan is called.
        generation: Hardware numbers of your own, for the prediction.
        calibration: Efficiencies for the prediction.
        cache: Whether to use and keep answers on disk; the key is the program itself, the target, the compiler's
            version and its flags.
        timeout: Seconds.

    Returns:
        A plan; a program that does not fit is one too, with `fits` False.

    Raises:
        AcceleratorTypeError: If there is no such slice.
        ParallelismError: If the strategy does not fit it.
        InvalidRequestError: If the program cannot be sent to another process.
        PlanError: If the program does not compile, or has a loop of unknown length.
    """
    shape = tpu.AcceleratorType.parse(accelerator_type)
    parallelism = parse_strategy(strategy, shape.device_count, slices)
    whole = program if args is None else with_arguments(program, args, specs, parallelism)
    request = _request(whole, shape, slices, parallelism, batch, cache=cache)
    answer = child.compile_in_child(request, timeout=timeout)
    return _Reading(
        answer,
        shape,
        slices,
        parallelism,
        batch,
        title or described(program),
        generation or shape.generation,
        calibration or Calibration.default(shape.generation),
        model,
        remat=remat,
    ).plan()


def compare_plans(
    program: Callable[..., Any],
    *,
    accelerator_type: str | tpu.AcceleratorType,
    slices: int = 1,
    strategies: Iterable[str | Parallelism] | None = None,
    batches: Iterable[int | None] = (None,),
    **options: Any,
) -> Plans:
    """Plans for several strategies and batches, compiled at the same time as far as memory allows.

    Args:
        program: See `plan`.
        accelerator_type: Of each slice.
        slices: How many.
        strategies: Which; all that the overview does not advise against when left out.
        batches: Examples per device.
        **options: Those of `plan`.
    """
    chosen = list(strategies or enumerate_strategies(accelerator_type, slices, advised=True))
    jobs = [(strategy, batch) for strategy in chosen for batch in batches]
    # Refuse a strategy that does not fit before anything is compiled.
    shape = tpu.AcceleratorType.parse(accelerator_type)
    for strategy, _ in jobs:
        parse_strategy(strategy, shape.device_count, slices)
    one = partial(plan, program, accelerator_type=shape, slices=slices, **options)
    with child.together(len(jobs)) as pool:
        found = [pool.submit(one, strategy=strategy, batch=batch) for strategy, batch in jobs]
        return Plans(each.result() for each in found)


def _request(
    program: Callable[..., Any],
    shape: tpu.AcceleratorType,
    slices: int,
    parallelism: Parallelism,
    batch: int | None,
    *,
    cache: bool,
) -> CompileRequest:
    return CompileRequest(
        program=packed(program),
        batch=batch,
        parallelism=parallelism,
        topology=f"{shape.generation.compiler_topology}:{shape.topology}" if child.has_libtpu() else "",
        chip_config=shape.generation.compiler_chip_config,
        host_bounds=(1, 1, 1) if shape.chips == 1 else (2, 2, 1),
        slices=slices,
        devices=shape.device_count * slices,
        cache=str(child.cache_folder()) if cache else None,
    )


class _Reading:
    """An answer of the compiling process, on its way to a plan."""

    def __init__(
        self,
        answer: dict[str, Any],
        shape: tpu.AcceleratorType,
        slices: int,
        parallelism: Parallelism,
        batch: int | None,
        title: str,
        generation: tpu.Generation,
        calibration: Calibration,
        model: Model | None,
        *,
        remat: bool,
    ) -> None:
        self.answer = answer
        self.shape = shape
        self.slices = slices
        self.parallelism = parallelism
        self.batch = batch
        self.title = title
        self.generation = generation
        self.calibration = calibration
        self.model = model
        self.remat = remat
        self.for_tpu = "TPU" in answer["compiler"]

    def plan(self) -> Plan:
        answer = self.answer
        usable = self.generation.hbm_usable_bytes_per_chip / self.generation.devices_per_chip
        fits = answer["status"] == "ok"
        peak = answer.get("peak_bytes") if fits else answer["needed_bytes"]
        ici, dcn = answer.get("ici", {}), answer.get("dcn", {})
        if not self.for_tpu:
            peak, ici, dcn = self._closed_forms()
        return Plan(
            title=self.title,
            accelerator_type=self.shape.name,
            topology=f"{self.generation.compiler_topology}:{self.shape.topology}",
            slices=self.slices,
            parallelism=self.parallelism,
            batch=self.batch,
            fits=fits if self.for_tpu else None,
            hbm_bytes=peak,
            hbm_limit_bytes=answer.get("limit_bytes", usable),
            flops=answer.get("flops"),
            remat_flops=answer.get("remat_flops", 0.0),
            loop_flops=answer.get("loop_flops", 0.0),
            ici=ici,
            dcn=dcn,
            bytes_accessed=answer.get("bytes_accessed", 0.0),
            compile_seconds=answer["compile_seconds"],
            compiler=answer["compiler"],
            cached=answer["cached"],
            prediction=self._prediction() if fits else None,
            notes=self._notes(),
        )

    def _prediction(self) -> Prediction | None:
        if self.for_tpu:
            return simulate(
                self.answer["events"],
                shape=self.shape,
                slices=self.slices,
                flops=self.answer["flops"],
                calibration=self.calibration,
                generation=self.generation,
            )
        if self.model is None or self.batch is None:
            return None
        return predict(
            self.model.recomputing() if self.remat else self.model,
            self.shape,
            batch_per_chip=self.batch * self.generation.devices_per_chip,
            slices=self.slices,
            strategy=self.parallelism,
            generation=self.generation,
            calibration=self.calibration,
        )

    def _closed_forms(self) -> tuple[float | None, dict[str, float], dict[str, float]]:
        if self.model is None or self.batch is None:
            return None, {}, {}
        moved = traffic(self.model, self.parallelism, self.batch)
        return (
            memory_bytes(self.model, self.parallelism, self.batch, remat=self.remat),
            dict(moved.ici),
            dict(moved.dcn_payload),
        )

    def _notes(self) -> tuple[str, ...]:
        notes = []
        if not self.for_tpu:
            source = "closed forms" if self.model and self.batch else "unknown"
            notes.append(
                f"libtpu is not installed: FLOPs are those of the CPU compiler, HBM and bytes are {source}, and "
                "whether it fits is not known. pip install 'multislice-nb[aot]' asks the TPU compiler."
            )
        if self.answer.get("not_kept"):
            notes.append(f"The answer is not kept for another time: {self.answer['not_kept']}.")
        if self.answer.get("loop_flops"):
            notes.append(
                "The bodies of loops are counted as often as they run; of these, matrix products alone."
            )
        return tuple(notes)
