"""Bars by strategy: where the time of a step goes, what it keeps in HBM, what it moves over ICI and DCN."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
from matplotlib.ticker import MaxNLocator

from multislice_nb._texts import grouped
from multislice_nb.errors import InvalidRequestError
from multislice_nb.plotting.figure import Chart, new_chart, new_charts
from multislice_nb.plotting.style import ThemeName, dress, head, numbered, write

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

    from multislice_nb.plotting.style import Theme
    from multislice_nb.sharding import Plan, Prediction, Traffic

__all__ = ["breakdown", "memory", "traffic"]

_GIB = 2**30
_PARTS = ("compute", "HBM", "ICI", "DCN")
_HATCHES = ("", "//", "\\\\", "xx", "--", "++")
_FITS, _TWICE, _OUT, _UNKNOWN = "fits", "fits, computing some of it twice", "out of memory", "by closed form"
_STATES = (_FITS, _TWICE, _OUT, _UNKNOWN)
_BATCH = ", batch "
"""Between a strategy and its batch, in names of plans."""
_BEYOND = 1.5
"""How far beyond what is usable a bar may reach, as a share of it; the number beside it tells the rest."""


def breakdown(steps: Sequence[Plan] | Mapping[str, Prediction], *, theme: ThemeName = "light") -> Chart:
    """Where the predicted time of a step goes: compute, HBM beyond compute, ICI, and DCN that nothing hides.

    Args:
        steps: Plans, or predictions by name. What does not fit is left out.
        theme: `light` or `dark`.

    Returns:
        A figure; `table` has seconds by strategy and part.

    Raises:
        InvalidRequestError: If there is no step to show.
    """
    predictions = _predictions(steps)
    table = pd.DataFrame(
        [
            {"strategy": name, **{part: one.breakdown.get(part, 0.0) for part in _PARTS}}
            for name, one in predictions.items()
        ]
    )
    chart, axes, colours = new_chart(table, theme, size=(7.6, 0.9 + 0.46 * len(table)))
    labels, common = _short(list(predictions))
    _stack(axes, colours, table, labels, [part for part in _PARTS if table[part].any()], scale=1e3)
    for row, one in enumerate(predictions.values()):
        _end(axes, colours, one.step_seconds * 1e3, row, f"{one.tflops_per_chip:.0f} TFLOP/s")
    axes.set_xlim(0, 1.22 * max(one.step_seconds for one in predictions.values()) * 1e3)
    dress(axes, colours, x="Time of a step (ms)", y="")
    axes.grid(visible=False, axis="y")
    note = "Predicted; DCN is what nothing hides" if table["DCN"].any() else "Predicted"
    head(chart, colours, title="Where a step's time goes", note=_joined(note, common))
    return chart


def traffic(steps: Sequence[Plan] | Mapping[str, Traffic], *, theme: ThemeName = "light") -> Chart:
    """Megabytes that a device moves in a step over ICI and over DCN, by strategy and kind of collective.

    Args:
        steps: From `sharding.compare_plans`, or closed forms of `sharding.traffic` by name.
        theme: `light` or `dark`.

    Returns:
        A figure of two panels; `table` has megabytes by strategy, network and kind.

    Raises:
        InvalidRequestError: If no step moves anything.
    """
    moving = {name: moved for name, moved in _moved(steps).items() if any(moved.values())}
    rows = [
        {"strategy": name, "network": network, "kind": kind, "megabytes": amount / 1e6}
        for name, networks in moving.items()
        for network, moved in networks.items()
        for kind, amount in moved.items()
        if amount >= 1e3  # sums of single numbers, such as the loss, would only fill the legend
    ]
    if not rows:
        raise InvalidRequestError(
            "None of these steps moves anything.", fix="Give steps of several devices that fit into memory."
        )
    table = pd.DataFrame(rows)
    kinds = list(dict.fromkeys(table["kind"]))
    names = list(moving)
    labels, common = _short(names)
    chart, panels, colours = new_charts(table, theme, columns=2, size=(9.4, 0.9 + 0.46 * len(names)))
    for axes, network in zip(panels, ("ICI", "DCN"), strict=True):
        part = table[table["network"] == network]
        wide = part.pivot_table(index="strategy", columns="kind", values="megabytes", aggfunc="sum")
        wide = wide.reindex(index=names, columns=kinds).fillna(0.0).reset_index()
        _stack(axes, colours, wide, labels, kinds, scale=1.0)
        totals = wide[kinds].sum(axis=1)
        for row, total in enumerate(totals):
            if total:  # beside a long bar a short one is not to be seen
                _end(axes, colours, total, row, f"{grouped(total)} MB")
        axes.set_xlim(0, 1.2 * totals.max() or 1)
        axes.xaxis.set_major_locator(MaxNLocator(4))
        numbered(axes.xaxis)
        dress(axes, colours, x=f"{network} (MB per device and step)", y="")
        axes.grid(visible=False, axis="y")
    panels[1].tick_params(labelleft=False)
    head(chart, colours, title="What a step moves, by collective", note=_joined("", common))
    return chart


def memory(plans: Sequence[Plan], *, theme: ThemeName = "light") -> Chart:
    """HBM that a step needs on a device, by strategy and batch, against what a program may use.

    Args:
        plans: From `sharding.compare_plans`, or those of `sharding.largest_batch`. What does not fit is shown by
            the temporaries that the compiler could not place; what has no number is left out.
        theme: `light` or `dark`.

    Returns:
        A figure; `table` has GiB by strategy, and whether it fits.

    Raises:
        InvalidRequestError: If no plan has a number.
    """
    known = {name: plan for name, plan in _named(plans).items() if plan.hbm_bytes is not None}
    if not known:
        raise InvalidRequestError(
            "None of these plans tells of memory.",
            fix="Install libtpu with pip install 'multislice-nb[aot]', or give plans of the MLP workload.",
        )
    limit = max(plan.hbm_limit_bytes for plan in known.values()) / _GIB
    table = pd.DataFrame(
        {"strategy": name, "state": _state(plan), "gib": (plan.hbm_bytes or 0.0) / _GIB, "limit_gib": limit}
        for name, plan in known.items()
    )
    states = [state for state in _STATES if (table["state"] == state).any()]
    wide = pd.DataFrame(
        {
            state: table["gib"].where(table["state"] == state, 0.0).clip(upper=_BEYOND * limit)
            for state in states
        }
    )
    chart, axes, colours = new_chart(table, theme, size=(7.6, 0.9 + 0.46 * len(table)))
    labels, common = _short(list(known))
    # A state looks the same in every figure, whichever others there are.
    _stack(axes, colours, wide, labels, states, scale=1.0, styles=list(map(_STATES.index, states)))
    for row, gib in enumerate(table["gib"]):
        end = min(gib, _BEYOND * limit)
        # A number that would stand across the line stands behind it.
        _end(axes, colours, end if end < 0.75 * limit else max(limit, end), row, f"{gib:.3g} GiB")
    axes.axvline(limit, color=colours.ink, linewidth=1.2, linestyle=(0, (4, 2)))
    axes.set_xlim(0, 1.2 * max(limit, float(wide.sum(axis=1).max())))
    dress(axes, colours, x="HBM of a device (GiB)", y="")
    axes.grid(visible=False, axis="y")
    note = f"Dashed: the {limit:.4g} GiB that a program may use"
    head(chart, colours, title="Does it fit?", note=_joined(note, common))
    return chart


def _state(plan: Plan) -> str:
    if plan.fits is None:
        return _UNKNOWN
    if not plan.fits:
        return _OUT
    return _TWICE if plan.rematerialises else _FITS


def _predictions(steps: Sequence[Plan] | Mapping[str, Prediction]) -> dict[str, Prediction]:
    if hasattr(steps, "items"):
        found = dict(steps.items())
    else:
        found = {name: plan.prediction for name, plan in _named(steps).items() if plan.prediction}
    if not found:
        raise InvalidRequestError(
            "There is no step to show.",
            fix="Give at least one plan that fits into memory, or one prediction.",
        )
    return found


def _moved(steps: Sequence[Plan] | Mapping[str, Traffic]) -> dict[str, dict[str, Mapping[str, float]]]:
    """Bytes by name, network and kind; over DCN those that a device hands to it."""
    if hasattr(steps, "items"):
        return {name: {"ICI": one.ici, "DCN": one.dcn_payload} for name, one in steps.items()}
    return {name: {"ICI": plan.ici, "DCN": plan.dcn} for name, plan in _named(steps).items()}


def _named(plans: Sequence[Plan]) -> dict[str, Plan]:
    """Plans by strategy, and by batch where a strategy has several."""
    strategies = [plan.parallelism.name for plan in plans]
    return {
        name
        if strategies.count(name) == 1
        else _BATCH.join((name, "of its own" if plan.batch is None else grouped(plan.batch))): plan
        for name, plan in zip(strategies, plans, strict=True)
    }


def _short(names: list[str]) -> tuple[list[str], str]:
    """Names without the parts with which the strategies of all of them end, and those parts."""
    halves = [name.partition(_BATCH) for name in names]
    parts = [strategy.split(" + ") for strategy, _, _ in halves]
    least = 0 if all(batch for _, _, batch in halves) else 1  # something must be left of a name
    common: list[str] = []
    while len(parts) > 1 and min(map(len, parts)) > least and len({one[-1] for one in parts}) == 1:
        common.insert(0, parts[0][-1])
        parts = [one[:-1] for one in parts]
    labels = [" + ".join(one) + mark + batch for one, (_, mark, batch) in zip(parts, halves, strict=True)]
    return [label.removeprefix(", ") for label in labels], " + ".join(common)


def _joined(note: str, common: str) -> str:
    return " · ".join(part for part in (note, f"all with {common}" if common else "") if part)


def _stack(
    axes: Axes,
    colours: Theme,
    table: pd.DataFrame,
    labels: list[str],
    columns: list[str],
    *,
    scale: float,
    styles: Sequence[int] | None = None,
) -> None:
    """Horizontal bars, one on the other; each column has its colour and its hatch."""
    rows = range(len(table))
    left: Any = [0.0] * len(table)
    for number, column in zip(styles or range(len(columns)), columns, strict=True):
        values = (table[column].astype(float) * scale).to_numpy()
        axes.barh(
            rows,
            values,
            left=left,
            height=0.62,
            label=column,
            color=colours.series[number % len(colours.series)],
            edgecolor=colours.paper,
            hatch=_HATCHES[number % len(_HATCHES)],
            linewidth=0.8,
        )
        left = left + values
    axes.set_yticks(list(rows), labels)
    axes.invert_yaxis()


def _end(axes: Axes, colours: Theme, at: float, row: int, text: str) -> None:
    write(axes, colours, text, (at, row), off=(5, 0), size=9.5, va="center")
