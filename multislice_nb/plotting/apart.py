"""Measurements of several models, trainings or numbers of slices in one file: each its own line, never one zigzag."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["SETTINGS", "told_apart", "varied"]

SETTINGS = (
    "workload", "embedding", "layers", "heads", "sequence", "vocabulary", "dtype",
    "optimizer", "learning_rate", "remat", "donate", "accelerator_type", "device_kind",
)  # fmt: skip
"""Columns, beside strategy, batch and slices, that make two rows different things to measure."""

_NAMES = frozenset({"workload", "dtype", "optimizer", "accelerator_type", "device_kind"})
"""Those whose values say by themselves what they are of."""
_SWITCHES = frozenset({"remat", "donate"})


def varied(frame: pd.DataFrame, columns: Iterable[str] = SETTINGS) -> list[str]:
    """Those of the columns in which the rows differ. A row without a value agrees with all.

    Devices are among them where slices of one type have several kinds, as real and emulated ones do.
    """
    found = [name for name in columns if name in frame.columns and len(set(frame[name].dropna())) > 1]
    if {"accelerator_type", "device_kind"} <= set(found):
        kinds = frame.groupby("accelerator_type")["device_kind"].nunique()
        return [name for name in found if name != "device_kind" or kinds.max() > 1]
    return found


def told_apart(frame: pd.DataFrame, *, by_slices: bool = True) -> pd.DataFrame:
    """The rows, with whatever else they differ in added to the names of their strategies.

    Of a configuration that was timed with several numbers of steps, the row of the most steps is kept.

    Args:
        frame: Measurements, with a column `strategy`.
        by_slices: Tell numbers of slices apart too.
    """
    names = frame["strategy"].astype(str)
    for column in varied(frame, (*SETTINGS, "slices") if by_slices else SETTINGS):
        names += frame[column].map(lambda value, name=column: _phrase(name, value))
    return _longest(frame.assign(strategy=names))


def _phrase(name: str, value: Any) -> str:
    if pd.isna(value):
        return ""
    if name == "slices":
        return f", {value:.0f} slice{'s' if value > 1 else ''}"
    if name in _SWITCHES:
        return f", {name if value else f'no {name}'}"
    return f", {value}" if name in _NAMES else f", {name.replace('_', ' ')} {value:g}"


def _longest(frame: pd.DataFrame) -> pd.DataFrame:
    """Of rows that differ in nothing but how often they were timed, the one of the most steps that was measured."""
    if not varied(frame, ("steps", "warmup")):
        return frame
    point = [name for name in ("strategy", "batch_per_device", "slices") if name in frame.columns]
    order = frame.assign(measured=frame["tflops_per_chip"].notna()).sort_values(
        ["measured", *(name for name in ("steps", "warmup") if name in frame.columns)], kind="stable"
    )
    return order.drop_duplicates(point, keep="last").drop(columns="measured").sort_index()
