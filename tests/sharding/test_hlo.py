from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multislice_nb import tpu
from multislice_nb.sharding import Calibration, Model, Parallelism, make_mesh
from multislice_nb.sharding.hlo import Module, Shape
from multislice_nb.sharding.program import (
    collectives,
    dcn_payload,
    group_size,
    loop_flops,
    matmul_flops,
    remat_flops,
)
from multislice_nb.sharding.schedule import Event, events, simulate

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sharding.reference_program import build
else:
    from reference_program import build  # pytest puts this folder on the path

V4_16 = tpu.AcceleratorType.parse("v4-16")
PROGRAM = """HloModule step, is_scheduled=true

%add (a: bf16[], b: bf16[]) -> bf16[] {
  %a = bf16[] parameter(0)
  %b = bf16[] parameter(1)
  ROOT %sum = bf16[] add(%a, %b)
}

%all-reduce-scatter.1 (p: bf16[8,16]) -> bf16[2,16] {
  %p = bf16[8,16]{1,0:T(8,128)(2,1)} parameter(0)
  %all-reduce.9 = bf16[8,16]{1,0:T(8,128)(2,1)} all-reduce(%p), channel_id=9, replica_groups={{0,1,2,3}}, to_apply=%add
  ROOT %part = bf16[2,16]{1,0} dynamic-slice(%all-reduce.9, %p), dynamic_slice_sizes={2,16}
}

%product (x: bf16[8,4], w: bf16[4,16]) -> bf16[8,16] {
  %x = bf16[8,4]{1,0} parameter(0)
  %w = bf16[4,16]{1,0} parameter(1)
  ROOT %convolution.1 = bf16[8,16]{1,0} convolution(%x, %w), dim_labels=bf_io->bf
}

%product.2 (x: bf16[8,4], w: bf16[4,16]) -> bf16[8,16] {
  %x = bf16[8,4]{1,0} parameter(0)
  %w = bf16[4,16]{1,0} parameter(1)
  ROOT %convolution.2 = bf16[8,16]{1,0} convolution(%x, %w), dim_labels=bf_io->bf
}

%body (s: (s32[], bf16[8,4])) -> (s32[], bf16[8,4]) {
  %s = (s32[]{:T(128)}, bf16[8,4]{1,0}) parameter(0)
  %all-gather.5 = bf16[8,4]{1,0} all-gather(%s), channel_id=5, replica_groups=[2,4]<=[8], dimensions={0}
  %fusion.5 = bf16[8,16]{1,0} fusion(%s, %all-gather.5), kind=kOutput, calls=%product.2, backend_config={"estimated_cycles":"50"}
  ROOT %t = (s32[]{:T(128)}, bf16[8,4]{1,0}) tuple(%s, %all-gather.5)
}

%condition (s: (s32[], bf16[8,4])) -> pred[] {
  %s = (s32[], bf16[8,4]) parameter(0)
  ROOT %less = pred[] constant(true)
}

ENTRY %main (x: bf16[8,4], w: bf16[1,16]) -> bf16[2,16] {
  %x = bf16[8,4]{1,0:T(8,128)(2,1)} parameter(0)
  %w = bf16[1,16]{1,0} parameter(1)
  %token = token[] after-all()
  %all-gather-start.1 = (bf16[1,16]{1,0}, bf16[4,16]{1,0}) all-gather-start(%w), channel_id=1, replica_groups=mesh['a'=2,'b'=4] {'b'}, dimensions={0}
  %all-gather-done.1 = bf16[4,16]{1,0} all-gather-done(%all-gather-start.1), channel_id=1
  %fusion.1 = bf16[8,16]{1,0} fusion(%x, %all-gather-done.1), kind=kOutput, calls=%product, backend_config={"estimated_cycles":"100"}
  %fusion.1.remat = bf16[8,16]{1,0} fusion(%x, %all-gather-done.1), kind=kOutput, calls=%product, backend_config={"estimated_cycles":"100"}
  %loop = (s32[], bf16[8,4]{1,0}) while(%x), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"3"}}
  %scatter = bf16[2,16]{1,0} fusion(%fusion.1), kind=kCustom, calls=%all-reduce-scatter.1
  %send.1 = (bf16[2,16]{1,0}, u32[], token[]) send(%scatter, %token), channel_id=2, is_host_transfer=true, frontend_attributes={_xla_host_transfer_handler_name="xla_megascale_runtime",_xla_host_transfer_rendezvous="r.1",_xla_megascale_transfer_type="ALL_REDUCE"}
  %recv.1 = (bf16[2,16]{1,0}, u32[], token[]) recv(%token), channel_id=3, is_host_transfer=true, frontend_attributes={_xla_host_transfer_handler_name="xla_megascale_runtime",_xla_host_transfer_rendezvous="r.1",_xla_megascale_transfer_type="ALL_REDUCE"}
  %send-done.1 = token[] send-done(%send.1), channel_id=2, is_host_transfer=true
  ROOT %recv-done.1 = (bf16[2,16]{1,0}, token[]) recv-done(%recv.1), channel_id=3, is_host_transfer=true
}
"""


def test_a_program_is_counted() -> None:
    """Collectives, transfers, loops and recomputation of a written-out program come out as counted by hand."""
    module = Module.parse(PROGRAM)
    product = 2 * 8 * 16 * 4
    assert module.runs["body"] == 3
    assert collectives(module) == {
        "reduce-scatter": 8 * 16 * 2 * 3 / 4,
        "all-gather": 4 * 16 * 2 * 3 / 4 + 3 * (8 * 4 * 2 * 3 / 4),
    }
    assert dcn_payload(module) == {"all-reduce": 2 * 16 * 2}
    assert matmul_flops(module, "main") == 2 * product
    assert remat_flops(module) == product
    assert loop_flops(module) == 2 * product


def test_a_programs_order_is_kept() -> None:
    """Events come in the scheduled order, loops with all their rounds, early-started collectives not at all."""
    product = 2 * 8 * 16 * 4
    assert events(Module.parse(PROGRAM)) == [
        Event("compute", 200.0, 2 * product),
        Event("ici", 3 * 48.0, members=4),
        Event("compute", 150.0, 3 * product),
        Event("ici", 192.0, members=4),
        Event("send", 64.0, name="all-reduce r.1"),
        Event("receive", name="r.1"),
    ]


def test_a_loop_of_unknown_length_is_named() -> None:
    """A loop without a known number of rounds is reported rather than counted once."""
    module = Module.parse(PROGRAM.replace('"known_trip_count":{"n":"3"}', ""))
    assert module.unknown_loops == ("loop",)


LOOP = """HloModule counted

%bound (i: s32[], n: s32[]) -> pred[] {
  %i = s32[] parameter(0)
  %n = s32[] parameter(1)
  ROOT %less = pred[] compare(%i, %n), direction=DIRECTION
}

%condition (state: (s32[], f32[8])) -> pred[] {
  %state = (s32[], f32[8]) parameter(0)
  %end = s32[] constant(END)
  %counter = s32[] get-tuple-element(%state), index=0
  ROOT %go = pred[] fusion(%counter, %end), kind=kLoop, calls=%bound
}

%body (state: (s32[], f32[8])) -> (s32[], f32[8]) {
  %state = (s32[], f32[8]) parameter(0)
  %step = s32[] constant(STEP)
  %counter = s32[] get-tuple-element(%state), index=0
  %data = f32[8] get-tuple-element(%state), index=1
  %next = s32[] add(%counter, %step)
  ROOT %again = (s32[], f32[8]) tuple(%next, %data)
}

ENTRY %main (x: f32[8]) -> (s32[], f32[8]) {
  %x = f32[8] parameter(0)
  %begin = s32[] constant(BEGIN)
  %copy = s32[] copy(%begin)
  %state = (s32[], f32[8]) tuple(%copy, %x)
  ROOT %loop = (s32[], f32[8]) while(%state), condition=%condition, body=%body
}
"""


@given(st.integers(-50, 50), st.integers(-50, 50), st.integers(1, 9), st.sampled_from(["LT", "LE"]))
def test_a_counters_rounds_are_read_from_the_program(begin: int, end: int, step: int, direction: str) -> None:
    """Rounds that the compiler does not write down follow from the counter's beginning, step and end."""
    text = LOOP.replace("BEGIN", str(begin)).replace("(END)", f"({end})")
    text = text.replace("STEP", str(step)).replace("DIRECTION", direction)
    module = Module.parse(text)
    assert module.unknown_loops == ()
    assert module.runs["body"] == len(range(begin, end + (direction == "LE"), step))


@pytest.mark.parametrize(
    ("old", "new"), [("add(%counter, %step)", "add(%counter, %counter)"), ("DIRECTION", "GT")]
)
def test_a_counter_of_another_kind_is_not_guessed(old: str, new: str) -> None:
    """A counter that doubles, or a loop that counts down, is reported as unknown."""
    text = LOOP.replace(old, new).replace("DIRECTION", "LT")
    text = text.replace("BEGIN", "1").replace("(END)", "(9)").replace("STEP", "1")
    assert Module.parse(text).unknown_loops == ("loop",)


@given(st.integers(1, 64), st.integers(1, 64))
def test_groups_are_read_in_every_form(members: int, groups: int) -> None:
    """The three ways in which XLA writes replica groups give the same number of members."""
    rows = ",".join(
        "{" + ",".join(str(row * members + at) for at in range(members)) + "}" for row in range(groups)
    )
    forms = (
        f"replica_groups={{{rows}}}",
        f"replica_groups=[{groups},{members}]<=[{groups * members}]",
        f"replica_groups=mesh['x'={groups},'y'={members}] {{'y'}}, dimensions={{0}}",
    )
    assert [group_size(form) for form in forms] == [members] * 3


def test_sizes_of_types() -> None:
    """Bytes of an array follow from its type, narrow ones included."""
    sizes = {Shape(kind, (4, 2)).bytes for kind in ("bf16", "f16", "u16")}
    assert sizes == {16}
    assert [Shape(kind, (8,)).bytes for kind in ("pred", "s4", "f8e4m3fn", "f32", "c64", "token")] == [
        8,
        4,
        8,
        32,
        64,
        0,
    ]


@pytest.mark.parametrize("layers", [1, 2, 3, 4, 5, 6])
def test_flops_are_those_that_run(layers: int) -> None:
    """For each depth the closed form, the parsed program and the compiler agree; 6BP over-counts by 6L/(6L-1)."""
    mesh = make_mesh(Parallelism(), jax.devices()[:1])
    function, arguments = build(mesh, 512, 128, layers)
    program = function.lower(*arguments).compile()
    module = Module.parse(program.as_text())
    model = Model.mlp(128, layers)
    assert matmul_flops(module, module.entry) == model.step_flops(512)
    # The compiler also counts what is not a matrix product.
    assert program.cost_analysis()["flops"] == pytest.approx(model.step_flops(512), rel=0.03)
    assert 6 * 512 * model.parameters / model.step_flops(512) == pytest.approx(6 * layers / (6 * layers - 1))


def compiled(function: Callable[..., jax.Array], *arguments: jax.Array) -> Module:
    """A function as this machine's compiler makes it."""
    text = jax.jit(function).lower(*arguments).compile().as_text()
    assert text is not None
    return Module.parse(text)


def test_loops_are_multiplied_out() -> None:
    """A scan over layers counts as many FLOPs as the same layers written out."""
    weights = jnp.zeros((5, 32, 32))
    x = jnp.zeros((8, 32))

    def scanned(x: jax.Array, weights: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda carry, weight: (carry @ weight, None), x, weights)[0]

    def unrolled(x: jax.Array, weights: jax.Array) -> jax.Array:
        for weight in weights:
            x = x @ weight
        return x

    loop, plain = (compiled(function, x, weights) for function in (scanned, unrolled))
    product = 2 * 8 * 32 * 32
    assert loop.unknown_loops == ()
    assert loop_flops(loop) == 4 * product
    assert loop_flops(plain) == 0
    assert matmul_flops(plain, plain.entry) == 5 * product


def test_batched_products_are_counted() -> None:
    """A batched matrix product, as in attention, has the FLOPs of its parts."""
    heads = jnp.zeros((3, 8, 16))
    module = compiled(lambda a, b: jnp.einsum("hij,hkj->hik", a, b), heads, heads)
    assert matmul_flops(module, module.entry) == 2 * 3 * 8 * 8 * 16
    as_on_tpu = Module.parse(
        "ENTRY %main (a: f32[3,8,16], b: f32[3,8,16]) -> f32[3,8,8] {\n"
        "  %a = f32[3,8,16]{2,1,0} parameter(0)\n"
        "  %b = f32[3,8,16]{2,1,0} parameter(1)\n"
        "  ROOT %c = f32[3,8,8]{2,1,0} convolution(%a, %b), window={size=3 stride=2 pad=0_0 lhs_dilate=3}, "
        "dim_labels=0bf_0oi->0bf\n}\n"
    )
    assert matmul_flops(as_on_tpu, "main") == 2 * 3 * 8 * 8 * 16


def test_dcn_hides_behind_what_computes_meanwhile() -> None:
    """A transfer that is awaited late costs nothing, one awaited at once costs its whole time."""
    calibration = Calibration(matmul_efficiency=1, dcn_efficiency=1)
    second = 275e12
    megabyte = Event("send", 12.5e9 / 8, name="all-reduce r")  # one second of a chip's share of DCN
    hidden = [megabyte, Event("compute", flops=2 * second), Event("receive", name="r")]
    exposed = [Event("compute", flops=2 * second), megabyte, Event("receive", name="r")]
    early, late = (
        simulate(timeline, shape=V4_16, slices=2, flops=2 * second, calibration=calibration)
        for timeline in (hidden, exposed)
    )
    assert early.step_seconds == pytest.approx(2)
    assert late.step_seconds == pytest.approx(3)
    assert (early.exposed_dcn_seconds, late.exposed_dcn_seconds) == pytest.approx((0, 1))
    assert early.dcn_seconds == late.dcn_seconds == pytest.approx(1)


def test_transfers_share_the_network() -> None:
    """Two transfers sent together follow one another, and more slices carry more of an all-reduce."""
    calibration = Calibration(matmul_efficiency=1, dcn_efficiency=1)
    both = [Event("send", 12.5e9 / 8, name=f"all-reduce {name}") for name in "ab"]
    waits = [Event("receive", name=name) for name in "ab"]
    two = simulate([*both, *waits], shape=V4_16, slices=2, flops=1, calibration=calibration)
    four = simulate([*both, *waits], shape=V4_16, slices=4, flops=1, calibration=calibration)
    assert two.step_seconds == pytest.approx(2)
    assert four.step_seconds == pytest.approx(3)
