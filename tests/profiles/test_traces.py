"""What is read out of traces: made by hand for TPUs, and one of this machine's own devices."""

from __future__ import annotations

import itertools
import subprocess
import sys
from typing import TYPE_CHECKING

import jax
import pytest
from hypothesis import given
from hypothesis import strategies as st

import multislice_nb as ms
from multislice_nb.errors import InvalidRequestError
from multislice_nb.profiles.operations import computes, kind_of, merged, total

if TYPE_CHECKING:
    from pathlib import Path

OPERATIONS = {
    "%all-reduce.3 = bf16[8]{0} all-reduce(bf16[8]{0} %fusion.1)": "all-reduce",
    "all-gather-start.1": "all-gather",
    "%all-gather-done = f32[4] all-gather-done(%all-gather-start)": "all-gather",
    "all-reduce-scatter.2": "reduce-scatter",
    "collective-permute-done.1": "collective-permute",
    "ragged-all-to-all.4": "all-to-all",
    "send-done.7": "send/recv",
    "recv.2": "send/recv",
    "%fusion.12 = bf16[8]{0} fusion(%all-gather-done)": None,
    "%fusion.4 = bf16[2] fusion(%dot.1), kind=kCustom, calls=%all-reduce-scatter.clone": "reduce-scatter",
    "dot.1": None,
    "sendoff_fusion": None,
}


@pytest.mark.parametrize(("operation", "kind"), OPERATIONS.items())
def test_an_operation_is_what_its_own_name_says(operation: str, kind: str | None) -> None:
    """Operands say nothing of it, a start and a done are the same collective, and XLA's fusion of two is one."""
    assert kind_of(operation) == kind


@pytest.mark.parametrize(
    ("operation", "whether"),
    [
        ("%broadcast_add_fusion = f32[5] fusion(f32[5] %copy-done.4), kind=kLoop", True),
        ("callback_fusion", True),
        ("%while.2 = (s32[], f32[2]) while(%tuple)", False),
        ("call", False),
        ("%copy-start.4 = (f32[5], f32[5]S(5), u32[]{:S(2)}) copy-start(f32[5] %copy-done.1)", False),
        ("%copy-done = f32[5] copy-done((f32[5], f32[5]S(5), u32[]{:S(2)}) %copy-start)", False),
        ("all-reduce.1", False),
    ],
)
def test_what_holds_others_or_waits_for_a_copy_computes_nothing(operation: str, whether: bool) -> None:
    """A loop's body is in the trace by itself; an array that is offloaded to the host is waited for."""
    assert computes(operation) is whether


intervals = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)).map(lambda pair: tuple(sorted(pair))))


@given(intervals)
def test_time_counts_once(given_intervals: list[tuple[int, int]]) -> None:
    """The union of intervals is as long as the moments in it, and its parts do not touch."""
    moments = {moment for begin, end in given_intervals for moment in range(begin, end)}
    assert total(given_intervals) == len(moments)
    parts = merged(given_intervals)
    assert all(one[1] < other[0] for one, other in itertools.pairwise(parts))


def xplane(path: Path, lines: dict[str, list[tuple[str, int, int]]], plane: str = "/device:TPU:0") -> None:
    """A trace of one plane: by line, operations with begin and duration in microseconds."""
    names = sorted({name for events in lines.values() for name, _, _ in events})
    told = "".join(
        f'lines {{ id: {number} name: "{line}" '
        + "".join(
            f"events {{ metadata_id: {names.index(name) + 1} offset_ps: {begin * 10**6} duration_ps: {long * 10**6} }} "
            for name, begin, long in events
        )
        + "} "
        for number, (line, events) in enumerate(lines.items(), 1)
    )
    meta = "".join(
        f'event_metadata {{ key: {number} value {{ id: {number} name: "{name}" }} }} '
        for number, name in enumerate(names, 1)
    )
    text = f'planes {{ id: 1 name: "{plane}" {told} {meta} }}'
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(jax.profiler.ProfileData.text_proto_to_serialized_xspace(text))


def test_a_tpus_time_is_told_apart(tmp_path: Path) -> None:
    """Compute 0-40 and 60-100, an all-gather 30-60 of which 10 hides, a loop around all, a copy 100-140."""
    run = tmp_path / "plugins" / "profile" / "one"
    lines = {
        "Steps": [("0", 0, 500)],
        "XLA Ops": [
            ("%while.1 = (f32[]) while(%tuple)", 0, 200),
            ("%fusion.1 = f32[8] fusion(%p)", 0, 40),
            ("%all-gather-done.1 = f32[8] all-gather-done(%s)", 40, 20),
            ("%fusion.2 = f32[8] fusion(%all-gather-done.1)", 60, 40),
            ("%copy-done.1 = f32[8] copy-done(%copy-start.1)", 130, 10),
            ("%all-reduce.1 = f32[8] all-reduce(%fusion.2)", 150, 50),
        ],
        "Async XLA Ops": [
            ("%all-gather-start.1 = f32[8] all-gather-start(%p)", 30, 30),
            ("%copy-start.1 = f32[8] copy-start(%p)", 100, 40),
        ],
    }
    for host in ("slice_000_worker_000", "slice_001_worker_000"):
        xplane(run / f"{host}.xplane.pb", lines)
    profile = ms.profiles.read(tmp_path)
    assert [host.name for host in profile.hosts] == ["slice_000_worker_000", "slice_001_worker_000"]
    (device,) = profile.hosts[0].devices
    assert device.device == "TPU:0"
    microseconds = {
        name: round(getattr(device, name) * 1e6, 3)
        for name in ("span", "compute", "collective", "exposed", "idle")
    }
    assert microseconds == {"span": 200, "compute": 80, "collective": 80, "exposed": 70, "idle": 50}
    assert {kind: round(seconds * 1e6) for kind, seconds in device.kinds.items()} == {
        "all-gather": 30,
        "all-reduce": 50,
    }
    assert list(profile.frame["worker"]) == ["slice_000_worker_000", "slice_001_worker_000"]
    assert round(profile.frame["all-reduce"].iloc[0] * 1e6) == 50
    for form in (str(profile), profile._repr_html_()):
        assert "slice_001_worker_000" in form
        assert "40%" in form
        assert f"xprof --logdir={tmp_path}" in form


OWN = """
import sys, jax, jax.numpy as jnp
jax.config.update("jax_num_cpu_devices", 2)
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.sharding.Mesh(jax.devices(), ("x",))
put = lambda shape: jax.device_put(jnp.ones(shape), NamedSharding(mesh, P(None, "x")))
step = jax.jit(lambda a, b: a @ b.T, out_shardings=NamedSharding(mesh, P()))
with jax.profiler.trace(sys.argv[1]):
    jax.block_until_ready(step(put((256, 256)), put((256, 256))))
"""


def test_a_trace_of_ones_own_devices(tmp_path: Path) -> None:
    """CPU devices that sum a product: each has computed, and has all-reduced."""
    subprocess.run([sys.executable, "-c", OWN, str(tmp_path)], check=True, timeout=120)
    (host,) = ms.profiles.read(tmp_path).hosts
    assert [device.device for device in host.devices] == ["CPU:0", "CPU:1"]
    for device in host.devices:
        assert device.compute > 0
        assert device.kinds["all-reduce"] > 0
        assert device.span >= device.compute + device.exposed


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    """No profile, no such run, and a file that is no trace."""
    with pytest.raises(InvalidRequestError, match="no profile"):
        ms.profiles.read(tmp_path)
    broken = tmp_path / "plugins" / "profile" / "r" / "<i>.xplane.pb"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"\xff no trace")
    with pytest.raises(InvalidRequestError, match="It has r"):
        ms.profiles.read(tmp_path, "another")
    profile = ms.profiles.read(tmp_path)
    assert "cannot be read" in str(profile)
    assert "<i>" not in profile._repr_html_()
