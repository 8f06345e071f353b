"""The workload: its numbers, its shards, its FLOPs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from multislice_nb.errors import InvalidRequestError, ParallelismError
from multislice_nb.experiments.configuration import Configuration
from multislice_nb.experiments.training import Options
from multislice_nb.experiments.transformer import Transformer
from multislice_nb.experiments.workload import MLP, check
from multislice_nb.sharding import Parallelism

if TYPE_CHECKING:
    from multislice_nb.experiments import LocalCluster

ONE = Parallelism()
SHARDED = [
    Parallelism(ici_data=8),
    Parallelism(ici_fsdp=8),
    Parallelism(ici_tensor=8),
    Parallelism(ici_fsdp=2, ici_tensor=2, dcn_data=2),
    Parallelism(ici_tensor=4, dcn_fsdp=2),
]


SGD = Options(learning_rate=10.0)
ADAM = Options(optimizer="adam", learning_rate=1e-2, remat=True)


@pytest.mark.parametrize(
    ("parallelism", "options"),
    [*((one, SGD) for one in SHARDED), *((one, ADAM) for one in SHARDED[-2:])],
    ids=str,
)
def test_sharded_training_equals_one_device(
    devices: LocalCluster, parallelism: Parallelism, options: Options
) -> None:
    """Every strategy has the losses of a single device and moves the parameters as it does."""
    workload = MLP(embedding=32, layers=2, dtype="float32")
    call = ("on_devices:trained", workload)
    [(losses, moves)] = devices.call(*call, parallelism, options, 3, 64)
    [(expected_losses, expected_moves)] = devices.call(*call, ONE, options, 3, 64)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
    assert losses[2] < losses[0]
    for ours, theirs in zip(moves, expected_moves, strict=True):
        assert np.abs(ours - theirs).mean() < 0.01 * np.abs(theirs).mean()


def test_momentum_accelerates_descent(devices: LocalCluster) -> None:
    """Momentum goes further than plain descent with the same rate after a few steps."""
    workload = MLP(embedding=32, layers=2, dtype="float32")
    last = {
        name: devices.call("on_devices:trained", workload, ONE, Options(name, 10.0), 5, 64)[0][0][-1]
        for name in ("sgd", "momentum")
    }
    assert last["momentum"] < last["sgd"]


@pytest.mark.parametrize("layers", range(1, 7))
def test_reported_flops_are_those_that_run(devices: LocalCluster, layers: int) -> None:
    """Reported FLOPs are the compiled program's, whose matrix products are (6 - 1/L) B P and not 6 B P."""
    workload, parallelism = MLP(embedding=128, layers=layers), Parallelism(ici_fsdp=8)
    batch = 8 * 64
    [(products, total)] = devices.call("on_devices:dot_flops", workload, parallelism, batch, Options())
    [measured] = devices.call(
        "multislice_nb.experiments.measure:measure",
        Configuration(
            strategy="fsdp",
            parallelism=parallelism,
            batch_per_device=64,
            workload=workload,
            steps=1,
            warmup=0,
        ),
    )
    assert measured["flops"] == total
    assert products == workload.matmul_flops(batch) / 8
    assert products < total < 1.07 * products  # the sigmoids, the loss and the update
    overcount = 6 * batch * workload.parameters / 8 / products
    assert overcount == pytest.approx(6 * layers / (6 * layers - 1))


def test_rematerialisation_costs_flops(devices: LocalCluster) -> None:
    """Recomputing the layers adds one forward pass less the last product of each, as counted in the program."""
    workload, batch = MLP(embedding=128, layers=3), 512
    call = ("on_devices:dot_flops", workload, Parallelism(ici_fsdp=8), batch)
    [(plain, _)] = devices.call(*call, Options())
    [(again, _)] = devices.call(*call, Options(remat=True))
    assert plain < again <= plain + 2 * batch * workload.parameters / 8


def test_shapes_need_no_data(devices: LocalCluster) -> None:
    """The shapes for the compiler carry each device's share and allocate nothing."""
    [(shapes, allocated)] = devices.call(
        "on_devices:shard_shapes", MLP(64, 1), Parallelism(ici_fsdp=2, ici_tensor=4), 512
    )
    assert shapes == [(256 // 4, 64 // 2), (256 // 4, 64 // 2), (512 // 2, 64 // 4)]
    assert allocated == 0


def test_donation_reuses_the_state(devices: LocalCluster) -> None:
    """A step takes the state's memory exactly when donation is asked for."""
    assert devices.call("on_devices:donated") == [(True, False)]


def test_sizes_that_do_not_divide_are_refused() -> None:
    """A model whose width an axis does not divide is refused with the axis and the width."""
    with pytest.raises(ParallelismError, match=r"100 .* 8 shards along fsdp"):
        check(MLP(embedding=100), Parallelism(ici_fsdp=8))
    check(MLP(embedding=104), Parallelism(ici_fsdp=8))


def test_unknown_optimizer_is_refused() -> None:
    """An optimiser that does not exist is refused with those that do."""
    with pytest.raises(InvalidRequestError, match="sgd, momentum, adam"):
        Options(optimizer="lion")


def test_noise_looks_random(devices: LocalCluster) -> None:
    """The cheap random numbers have the mean and deviation asked for, and rows that are not alike."""
    [(mean, deviation, correlation, differ)] = devices.call("on_devices:noise_moments", (50, 4000), 0.5)
    assert abs(mean) < 0.01
    assert deviation == pytest.approx(0.5, rel=0.01)
    assert correlation < 0.1
    assert differ


SMALL_TRANSFORMER = Transformer(embedding=64, layers=2, heads=4, sequence=16, vocabulary=96, dtype="float32")


@pytest.mark.parametrize(
    "parallelism", [Parallelism(ici_fsdp=8), Parallelism(ici_fsdp=2, ici_tensor=2, dcn_data=2)], ids=str
)
def test_sharded_transformer_equals_one_device(devices: LocalCluster, parallelism: Parallelism) -> None:
    """The transformer trains as on one device, and its matrix products are the closed form exactly."""
    options = Options(optimizer="adam", learning_rate=1e-3, remat=parallelism.slices > 1)
    call = ("on_devices:trained", SMALL_TRANSFORMER)
    [(losses, moves)] = devices.call(*call, parallelism, options, 3, 16)
    [(expected_losses, expected_moves)] = devices.call(*call, ONE, options, 3, 16)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
    assert losses[2] < losses[0]
    assert sum(move.size for move in moves) == SMALL_TRANSFORMER.parameters
    for ours, theirs in zip(moves, expected_moves, strict=True):
        assert np.abs(ours - theirs).mean() < 0.01 * np.abs(theirs).mean()
    [(products, _)] = devices.call("on_devices:dot_flops", SMALL_TRANSFORMER, parallelism, 16, Options())
    assert products == SMALL_TRANSFORMER.matmul_flops(16) / 8


def test_impossible_transformers_are_refused() -> None:
    """Heads that do not share the embedding, and sizes below one, are refused."""
    with pytest.raises(InvalidRequestError, match="8 heads do not share 100"):
        Transformer(embedding=100, heads=8)
    with pytest.raises(InvalidRequestError, match="layers cannot be 0"):
        Transformer(layers=0)
    with pytest.raises(ParallelismError, match="3 shards along tensor"):
        check(Transformer(), Parallelism(ici_tensor=3))
