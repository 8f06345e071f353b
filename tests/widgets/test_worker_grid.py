from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multislice_nb.cluster import DeviceUsage, WorkerUsage
from multislice_nb.widgets.grid import Grid, columns_of, paint
from multislice_nb.widgets.snapshot import ClusterLook, WorkerLook
from multislice_nb.widgets.worker_tables import legend_html, levels, stand_out, table

GIB = 2**30


def workers(slices: int, per_slice: int, **states: str) -> tuple[WorkerLook, ...]:
    """All ready but those named, as `r5="lost"`."""
    return tuple(
        WorkerLook(
            rank,
            rank // per_slice,
            rank % per_slice,
            f"n-{rank // per_slice}",
            "a",
            states.get(f"r{rank}", "ready"),
        )
        for rank in range(slices * per_slice)
    )


def use(rank: int, hbm: float = 8.0, duty: float | None = 50.0) -> WorkerUsage:
    """A worker with two devices of 16 GiB."""
    devices = tuple(DeviceUsage(n, int(hbm * GIB / 2), 16 * GIB, duty) for n in range(2))
    return WorkerUsage(rank, devices, 10 * GIB, 100 * GIB, 1.0, 8, 1.0, 80.0)


@given(slices=st.integers(1, 256), per_slice=st.integers(1, 64))
def test_rows_hold_whole_slices_where_they_can(slices: int, per_slice: int) -> None:
    """A row is whole slices or an even part of one, and never wider than the panel takes."""
    columns = columns_of(slices * per_slice, per_slice)
    assert 1 <= columns <= 32 or columns == per_slice <= 32
    if per_slice <= 32:
        assert columns % per_slice == 0
    elif any(per_slice % count == 0 for count in range(17, 33)):
        assert per_slice % columns == 0


def test_each_worker_is_painted_by_its_state() -> None:
    """The usual state is one rule for all; the others name exactly their workers, with the shape of their state."""
    states = ["ready"] * 1024
    states[5] = "lost"
    states[700] = states[1023] = "behind"
    rules = paint("scope", states, {0: 0, 5: 8})
    found = {
        part: re.findall(rf":nth-child\((\d+)\)[^{{]*{{--msnb-tone:var\(--msnb-{part}\)", rules)
        for part in ("bad",)
    }
    assert found["bad"] == ["6"]
    assert ":nth-child(701),:nth-child(1024)" in rules
    assert rules.count("nth-child") == 4
    assert "--msnb-fill:100%" in rules


def test_the_grid_is_one_widget_and_stays_in_place() -> None:
    """A thousand workers are one set of buttons; a change of state changes a rule of style and no button."""
    pressed: list[int] = []
    grid = Grid(pressed.append)
    grid.draw(ClusterLook("big", "", workers(256, 4)), {}, 0)
    before = (grid.buttons.options, grid.buttons.tooltips)
    assert len(grid.buttons.options) == 1024
    grid.draw(ClusterLook("big", "", workers(256, 4, r9="lost")), {3: 4}, 7)
    assert (grid.buttons.options, grid.buttons.tooltips) == before
    assert (grid.buttons.index, pressed) == (7, [])
    grid.buttons.index = 12
    assert pressed == [12]


def test_a_button_is_its_workers_rank_where_a_slice_is_missing() -> None:
    """Without the slice in the middle, the buttons, their paint, their rows and what is pressed are by rank."""
    pressed: list[int] = []
    grid = Grid(pressed.append)
    there = tuple(one for one in workers(3, 4, r9="lost") if one.slice_id != 1)
    grid.draw(ClusterLook("c", "", there), {8: 8}, 9)
    assert grid.buttons.label == "9"
    assert ":is(:nth-child(6)){--msnb-tone:var(--msnb-bad)" in grid._paint.value
    assert ":is(:nth-child(5)){--msnb-fill:100%}" in grid._paint.value
    assert "slice 2 · 8–11" in grid._rows.value
    grid.buttons.index = 4
    assert pressed == [8]
    grid.draw(ClusterLook("c", "", there), {}, 5)
    assert grid.buttons.index is None


def test_few_are_all_shown_and_of_many_those_that_stand_out() -> None:
    """Four workers are all in the table; of 1024 the lost, the late, the silent and the extremes, with the reason."""
    assert list(stand_out(workers(2, 2), {})) == [0, 1, 2, 3]
    usage = {rank: use(rank) for rank in range(1024)} | {17: use(17, hbm=31.0), 900: use(900, duty=1.0)}
    found = stand_out(workers(256, 4, r3="lost", r40="behind"), usage)
    assert found[3] == "lost"
    assert found[40] == "behind"
    assert found[17] == "most HBM in use"
    assert found[900] == "least duty cycle"
    assert len(found) <= 8


def test_the_worker_that_printed_last_longest_ago_is_pointed_at() -> None:
    """Of many that run, the one silent for longest is named: it is the one that hangs."""
    now = time.time()
    many = tuple(
        WorkerLook(rank, rank, 0, f"n-{rank}", "a", "running", "step", now - (90 if rank == 21 else 1))
        for rank in range(32)
    )
    assert stand_out(many, {})[21] == "silent for longest"


def test_the_tpu_is_told_where_there_is_one() -> None:
    """HBM and duty cycle have their columns on a TPU, memory and processors stand for them on the emulator."""
    four = ClusterLook("c", "", workers(2, 2))
    page = table(four, {rank: use(rank) for rank in range(4)}, 0)
    assert "8.0 GiB" in page
    assert "Duty cycle" in page
    assert "HBM 8.0 of 32.0 GiB a worker · duty cycle 50 %" in legend_html(four, {0: use(0)})
    plain = WorkerUsage(0, (), 3 * 10**9, 10**10, 1.0, 8, 1.0, 12.0)
    page = table(four, {0: plain}, 0)
    assert "HBM" not in page
    assert "3.0 GB" in page


@pytest.mark.parametrize(("share", "level"), [(0.0, None), (0.001, 1), (0.5, 4), (1.0, 8), (1.5, 8)])
def test_what_is_used_at_all_is_seen(share: float, level: int | None) -> None:
    """A cell is filled in eighths; the least use is an eighth, none is nothing."""
    assert levels({0: use(0, hbm=32 * share)}, "HBM in use").get(0) == level
