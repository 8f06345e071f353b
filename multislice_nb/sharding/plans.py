"""What the compiler says about one program on one kind of slices: a plan, and several side by side."""

from __future__ import annotations

import html
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from multislice_nb._texts import grouped
from multislice_nb.cloud.display import html_table, text_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from multislice_nb.sharding.cost import Prediction
    from multislice_nb.sharding.parallelism import Parallelism

__all__ = ["LargestBatch", "Plan", "Plans"]

_GIB = 2**30
_SHOWN = {
    "strategy": "strategy",
    "batch a device": "batch_per_device",
    "fits": "fits",
    "HBM, GiB": "hbm_gib",
    "TFLOP a step": "tflop",
    "computed twice": "remat_overhead",
    "ICI, MB": "ici_mb",
    "DCN, MB": "dcn_mb",
    "TFLOP/s a chip": "tflops_per_chip",
    "bound by": "bound",
}
_HEADER = tuple(_SHOWN)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A training step, compiled for slices that need not exist. Numbers are per JAX device (a chip, but on TPU7x).

    Attributes:
        title: What was compiled, such as `mlp, embedding 2048, layers 4`.
        accelerator_type: Of each slice.
        topology: Its shape, such as `v4:2x2x2`.
        slices: How many.
        parallelism: Degrees.
        batch: Examples per device, if it was asked for.
        fits: Whether it fits into HBM; None without the TPU compiler.
        hbm_bytes: Peak HBM, or what would be needed when it does not fit; without the TPU compiler the closed
            form, or None.
        hbm_limit_bytes: What a program may use.
        flops: FLOPs of a step as compiled; None when it does not fit.
        remat_flops: FLOPs of it that are computed twice to save memory.
        loop_flops: FLOPs of it that were added because the compiler counts a loop's body once.
        ici: Bytes received over ICI in a step, by kind of collective.
        dcn: Bytes handed to DCN in a step, by kind of collective.
        bytes_accessed: Bytes read and written in memory, as the compiler counts them.
        compile_seconds: How long compiling took, when it was first done.
        compiler: Which compiler, and its version.
        cached: Whether the answer was known from before.
        prediction: How long the step would take; None when it does not fit.
        notes: Where a number does not come from the TPU compiler.
        largest: The largest batch that fits, if it was asked for.
    """

    title: str
    accelerator_type: str
    topology: str
    slices: int
    parallelism: Parallelism
    batch: int | None
    fits: bool | None
    hbm_bytes: float | None
    hbm_limit_bytes: float
    flops: float | None
    remat_flops: float
    loop_flops: float
    ici: Mapping[str, float]
    dcn: Mapping[str, float]
    bytes_accessed: float
    compile_seconds: float
    compiler: str
    cached: bool
    prediction: Prediction | None
    notes: tuple[str, ...] = ()
    largest: LargestBatch | None = None

    def __post_init__(self) -> None:
        for name in ("ici", "dcn"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    @property
    def ici_bytes(self) -> float:
        """All bytes over ICI in a step."""
        return sum(self.ici.values())

    @property
    def dcn_bytes(self) -> float:
        """All bytes handed to DCN in a step."""
        return sum(self.dcn.values())

    @property
    def rematerialises(self) -> bool:
        """Whether the compiler computes something twice to save memory."""
        return self.remat_flops > 0

    @property
    def remat_overhead(self) -> float:
        """FLOPs computed twice, over the others."""
        return self.remat_flops / (self.flops - self.remat_flops) if self.flops else 0.0

    @property
    def row(self) -> dict[str, object]:
        """Everything as one flat row of a table."""
        return {
            "strategy": self.parallelism.name,
            "accelerator_type": self.accelerator_type,
            "slices": self.slices,
            "batch_per_device": self.batch,
            "fits": self.fits,
            "hbm_gib": None if self.hbm_bytes is None else self.hbm_bytes / _GIB,
            "hbm_limit_gib": self.hbm_limit_bytes / _GIB,
            "tflop": None if self.flops is None else self.flops / 1e12,
            "remat_overhead": self.remat_overhead,
            "ici_mb": self.ici_bytes / 1e6,
            "dcn_mb": self.dcn_bytes / 1e6,
            "tflops_per_chip": self.prediction.tflops_per_chip if self.prediction else None,
            "utilisation": self.prediction.utilisation if self.prediction else None,
            "bound": self.prediction.bound if self.prediction else None,
            "compiler": self.compiler,
        }

    @property
    def lines(self) -> tuple[str, ...]:
        """What a person wants to know, a line each."""
        largest = str(self.largest) if self.largest else ""
        return tuple(line for line in (self._how(), *self._what(), largest, *self.notes) if line)

    def _how(self) -> str:
        time = "known from before" if self.cached else f"in {self.compile_seconds:.1f} s, no TPU used"
        where = f"{self.slices} x {self.topology}" if self.slices > 1 else self.topology
        return f"{self.title}, {self.parallelism.name}: compiled by {self.compiler} for {where}, {time}"

    def _what(self) -> list[str]:
        limit = f"{self.hbm_limit_bytes / _GIB:.2f} GiB"
        if self.fits is False:
            needed = f"{(self.hbm_bytes or 0) / _GIB:.2f}"
            return [f"OUT OF MEMORY: temporaries of {needed} GiB a device, {limit} are usable"]
        memory = "HBM unknown" if self.hbm_bytes is None else f"HBM {self.hbm_bytes / _GIB:.2f} of {limit}"
        flops = f"{(self.flops or 0) / 1e12:.4g} TFLOP a step"
        twice = (
            f"{self.remat_overhead:.0%} computed twice (rematerialisation)"
            if self.rematerialises
            else "no rematerialisation"
        )
        known = (
            [f"{memory}, {flops} a device"]
            if self.fits is None
            else [f"{memory} · {flops} a device · {twice}"]
        )
        moved = f"ICI {_megabytes(self.ici)}, DCN {_megabytes(self.dcn)} a device and step"
        predicted = f"Predicted {self.prediction}" if self.prediction else ""
        return [*known, moved, predicted]

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def _repr_html_(self) -> str:
        head, *rest = (html.escape(line) for line in self.lines)
        items = "".join(f"<li>{line}</li>" for line in rest)
        return f"<div><strong>{head}</strong><ul>{items}</ul></div>"


class Plans(tuple[Plan, ...]):
    """Plans side by side, with text, HTML and table forms; `multislice_nb.plotting` draws them."""

    __slots__ = ()

    @property
    def table(self) -> pd.DataFrame:
        """A row each."""
        import pandas as pd

        return pd.DataFrame([plan.row for plan in self])

    def __str__(self) -> str:
        return text_table(_HEADER, self._cells())

    def _repr_html_(self) -> str:
        return html_table(_HEADER, self._cells())

    def _cells(self) -> list[tuple[str, ...]]:
        rows = [plan.row | {"remat_overhead": f"{plan.remat_overhead:.0%}"} for plan in self]
        for row in rows:
            if row["fits"] is False:  # there is no program of which it could be told
                row.update(dict.fromkeys(("remat_overhead", "ici_mb", "dcn_mb")))
        return [tuple(_cell(row[column]) for column in _SHOWN.values()) for row in rows]


@dataclass(frozen=True, kw_only=True)
class LargestBatch:
    """The largest batch that fits into HBM, by bisection.

    Attributes:
        batch: Examples per device: the largest that was compiled and fits.
        too_large: The smallest that was compiled and does not fit.
        remat_after: The largest without rematerialisation; 0 if even the smallest that was compiled has it.
        remat_from: The smallest with it; None if there is none up to `batch`.
        plans: All that was compiled, by batch.
    """

    batch: int
    too_large: int
    remat_after: int
    remat_from: int | None
    plans: Plans

    @property
    def plan(self) -> Plan:
        """The plan of the largest batch."""
        return next(plan for plan in self.plans if plan.batch == self.batch)

    def __str__(self) -> str:
        largest = (
            f"Largest batch that fits: {grouped(self.batch)} a device ({grouped(self.too_large)} does not)"
        )
        if self.remat_from is None:
            return f"{largest}, without rematerialisation"
        return (
            f"{largest}; rematerialisation begins between {grouped(self.remat_after)} and "
            f"{grouped(self.remat_from)}"
        )

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(str(self))}</p>{self.plans._repr_html_()}"


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if value < 1000 else grouped(value)
    return grouped(value) if isinstance(value, int) else str(value)


def _megabytes(amounts: Mapping[str, float]) -> str:
    """A total, with its kinds where there is more than one worth telling."""
    total = sum(amounts.values())
    told = [f"{kind} {amount / 1e6:.4g}" for kind, amount in amounts.items() if amount > total / 1000]
    kinds = f" ({', '.join(told)})" if len(told) > 1 else ""
    return f"{total / 1e6:.4g} MB{kinds}"
