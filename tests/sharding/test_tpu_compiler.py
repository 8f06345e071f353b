from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec

from multislice_nb import sharding
from multislice_nb.sharding import Model, Parallelism, Plan, child

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.sharding.reference_program import build
else:
    from reference_program import build  # pytest puts this folder on the path

pytestmark = [
    pytest.mark.skipif(not child.has_libtpu(), reason="the TPU compiler (libtpu) is not installed"),
    pytest.mark.timeout(1200),  # a compilation takes 5 to 20 s of two cores, and more where they are shared
]
GIB = 2**30


@pytest.fixture(scope="module", autouse=True)
def plans_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache of plans that the tests of this module share."""
    home = tmp_path_factory.mktemp("plans")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MULTISLICE_NB_HOME", str(home))
        yield home


class Row(NamedTuple):
    """What the compiler was seen to say: TFLOP and GiB a device, MB over ICI and DCN."""

    accelerator_type: str
    slices: int
    batch: int
    tflop: float
    gib: float
    ici: float
    dcn: float
    remat: bool = False


# MLP of embedding 2048 and 4 layers, bf16, FSDP over all chips of a slice, data parallelism between slices; seen
# with libtpu 0.0.42.1. ICI and DCN follow from closed forms: parameters of 268.4 MB.
SEEN = [
    Row("v4-8", 1, 131072, 101.2, 10.88, 402.7, 0),
    Row("v4-8", 1, 262144, 202.4, 21.38, 402.7, 0),
    Row("v4-8", 1, 393216, 330.1, 25.84, 402.7, 0, remat=True),
    Row("v4-8", 1, 524288, 457.7, 26.34, 402.7, 0, remat=True),
    Row("v4-8", 2, 131072, 101.2, 10.84, 402.7, 67.1),
    Row("v5e-16", 2, 16384, 12.65, 1.85, 755, 16.8),
]


def compiled(accelerator_type: str, slices: int, batch: int) -> Plan:
    """The reference program, compiled."""
    return sharding.plan(build, accelerator_type=accelerator_type, slices=slices, batch=batch)


@pytest.mark.parametrize("row", SEEN, ids=lambda row: f"{row.slices}x{row.accelerator_type}-{row.batch}")
def test_what_was_seen_is_reproduced(row: Row) -> None:
    """FLOPs and bytes are those seen, memory within 2 %, and recomputation begins where it was seen to."""
    found = compiled(row.accelerator_type, row.slices, row.batch)
    assert found.fits
    assert found.flops is not None
    assert found.hbm_bytes is not None
    assert found.flops / 1e12 == pytest.approx(row.tflop, rel=0.0006)
    assert found.hbm_bytes / GIB == pytest.approx(row.gib, rel=0.02)
    assert found.ici_bytes / 1e6 == pytest.approx(row.ici, rel=0.0003)
    assert found.dcn_bytes / 1e6 == pytest.approx(row.dcn, rel=0.002)
    assert found.rematerialises == row.remat
    needed = Model.mlp().step_flops(row.batch)
    assert found.flops - found.remat_flops == pytest.approx(needed, rel=0.002)


@pytest.mark.parametrize(
    ("accelerator_type", "slices", "batch", "limit"),
    [("v4-8", 1, 1048576, 30.75), ("v5e-16", 2, 524288, 15.75)],
)
def test_out_of_memory_has_its_size(accelerator_type: str, slices: int, batch: int, limit: float) -> None:
    """What does not fit is a plan with the memory needed and the memory usable."""
    found = compiled(accelerator_type, slices, batch)
    assert found.fits is False
    assert found.flops is None
    assert found.prediction is None
    assert found.hbm_limit_bytes == limit * GIB
    assert found.hbm_bytes is not None
    assert found.hbm_bytes > found.hbm_limit_bytes
    assert "OUT OF MEMORY" in str(found)


def test_the_overviews_measurements_are_predicted_from_the_schedule() -> None:
    """The compiler's own cycles and schedule give 260 TFLOP/s on v4-8 and 230 on two v4-16 within a tenth."""
    one, two = compiled("v4-8", 1, 131072), compiled("v4-16", 2, 131072)
    assert one.prediction is not None
    assert two.prediction is not None
    assert one.prediction.tflops_per_chip == pytest.approx(260, rel=0.1)
    assert two.prediction.tflops_per_chip == pytest.approx(230, rel=0.1)
    assert 0 < two.prediction.exposed_dcn_seconds < two.prediction.dcn_seconds


def test_the_largest_batch_is_found_and_where_recomputation_begins() -> None:
    """On v4-8 it lies between 524288 and 1048576, and rematerialisation begins between 262144 and 393216."""
    found = sharding.largest_batch(build, accelerator_type="v4-8", model=Model.mlp(), resolution=0.5)
    assert 524288 <= found.batch < found.too_large <= 1048576
    assert found.remat_after == 262144
    assert found.remat_from == 393216
    assert "rematerialisation begins between 262 144 and 393 216" in str(found)
    assert found.plan.fits


@pytest.mark.parametrize(
    ("accelerator_type", "slices", "parallelism"),
    [
        ("v4-8", 1, Parallelism(ici_fsdp=4)),
        ("v6e-8", 2, Parallelism(ici_fsdp=8, dcn_data=2)),
        ("v5p-8", 4, Parallelism(ici_data=2, ici_fsdp=2, dcn_data=4)),
        ("tpu7x-8", 2, Parallelism(ici_fsdp=8, dcn_data=2)),
    ],
)
def test_bytes_match_the_closed_forms(accelerator_type: str, slices: int, parallelism: Parallelism) -> None:
    """For other generations and shapes the bytes over ICI and the DCN payloads are the closed forms.

    The compiler is free to sum some gradients in full where a scatter would do, which moves them twice, and to
    make an all-reduce of a scatter and a gather, which moves the same.
    """
    model = Model.mlp(1024, 2)
    found = sharding.plan(
        partial(build, width=1024, layers=2),
        accelerator_type=accelerator_type,
        slices=slices,
        strategy=parallelism,
        batch=1024,
    )
    moved = sharding.traffic(model, parallelism, 1024)
    if parallelism.ici_data == 1:
        assert found.ici["all-gather"] == pytest.approx(moved.ici["all-gather"], rel=0.001)
    gradients = moved.ici["reduce-scatter"] + moved.ici.get("all-reduce", 0)
    ratio = (found.ici_bytes - moved.ici["all-gather"]) / gradients
    assert 0.999 < ratio < 2.001
    assert found.dcn_bytes == pytest.approx(sum(moved.dcn_payload.values()), rel=0.002)


def test_a_users_function_keeps_what_it_donates() -> None:
    """A jitted function with shapes compiles for a TPU, its scan is multiplied out, and donation saves memory."""

    def forward(weights: jax.Array, x: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda carry, weight: (jnp.tanh(carry @ weight), None), x, weights)[0]

    shapes = (
        jax.ShapeDtypeStruct((12, 512, 512), jnp.bfloat16),
        jax.ShapeDtypeStruct((65536, 512), jnp.bfloat16),
    )
    specs = (PartitionSpec(), PartitionSpec("fsdp"))
    kept, given = (
        sharding.plan(
            jax.jit(forward, donate_argnums=donated), args=shapes, specs=specs, accelerator_type="v5e-4"
        )
        for donated in ((), (1,))
    )
    assert kept.flops == pytest.approx(12 * 2 * 16384 * 512 * 512, rel=0.02)
    assert kept.loop_flops > 0
    assert kept.hbm_bytes is not None
    assert given.hbm_bytes is not None
    assert given.hbm_bytes < kept.hbm_bytes
