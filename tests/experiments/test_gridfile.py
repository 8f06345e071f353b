"""Sweeps written down in YAML."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from multislice_nb.errors import InvalidRequestError
from multislice_nb.experiments import MLP, Options, Transformer, read_request
from multislice_nb.experiments.rows import Place
from multislice_nb.sharding import Parallelism

if TYPE_CHECKING:
    from pathlib import Path

PLACE = Place(
    cluster="demo",
    accelerator_type="v4-16",
    generation="v4",
    device_kind="TPU v4",
    slices=2,
    chips=16,
    devices=16,
    slices_attached=2,
)


def test_lists_in_models_and_options_are_grids(tmp_path: Path) -> None:
    """Every list in a model or an option multiplies the configurations."""
    file = tmp_path / "sweep.yaml"
    file.write_text(
        "strategies: [fsdp, {ici_fsdp: 4, ici_tensor: 2, dcn_data: -1}]\n"
        "batch_sizes: [8, 16, 32]\n"
        "workloads:\n- mlp: {embedding: [64, 128], layers: 2}\n- transformer: {layers: [1, 2], embedding: 64}\n"
        "options:\n- {optimizer: adam, remat: [false, true]}\n- {donate: false}\n"
        "steps: 5\n"
    )
    request = read_request(file)
    assert request.workloads == [
        MLP(64, 2),
        MLP(128, 2),
        Transformer(layers=1, embedding=64),
        Transformer(layers=2, embedding=64),
    ]
    assert request.options == [Options("adam"), Options("adam", remat=True), Options(donate=False)]
    points = request.configurations(PLACE)
    assert len(points) == 2 * 3 * 4 * 3
    assert {point.steps for point in points} == {5}
    assert {point.parallelism for point in points} == {
        Parallelism(ici_fsdp=8, dcn_data=2),
        Parallelism(ici_fsdp=4, ici_tensor=2, dcn_data=2),
    }
    costs = [point.workload.matmul_flops(point.batch_per_device) for point in points]
    assert costs == sorted(costs)


def test_slices_are_a_dimension_of_the_grid() -> None:
    """Each number of slices multiplies the configurations; a strategy keeps its name and its degrees inside a slice."""
    request = read_request(
        {"strategies": ["fsdp", {"ici_fsdp": 8, "dcn_data": -1}], "batch_sizes": 8, "slices": [2, 1]}
    )
    points = request.configurations(PLACE)
    assert [(point.strategy, point.slices) for point in points] == [("fsdp", 1), ("fsdp", 2)]
    assert {point.parallelism.ici for point in points} == {(1, 8, 1)}
    for wrong in (3, 0, [1, 4]):
        with pytest.raises(InvalidRequestError, match="demo has 2"):
            read_request({"strategies": "fsdp", "batch_sizes": 8, "slices": wrong}).configurations(PLACE)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"strategy": ["fsdp"]}, "Did you mean strategies"),
        ({"workloads": ["mpl"]}, "Did you mean mlp"),
        ({"workloads": [{"mlp": {"embeding": 8}}]}, "Did you mean embedding"),
        ({"options": [{"optimiser": "sgd"}]}, "Did you mean optimizer"),
        ({"strategies": [{"fsdp": 8}]}, "not a part of a strategy"),
        ({"options": ["adam"]}, "does not say which options"),
        ({"workloads": [{"mlp": {"layers": 0}}]}, "layers cannot be 0"),
        ({"workloads": [{"transformer": {"sequence": "8"}}]}, "sequence cannot be '8'"),
        ({"options": [{"learning_rate": "fast"}]}, "learning_rate cannot be 'fast'"),
        ({"timeout": "long"}, "timeout cannot be 'long'"),
    ],
)
def test_wrong_words_are_named(content: dict[str, Any], words: str) -> None:
    """A word that is not known is refused with the nearest one that is, and a value that cannot be by its name."""
    with pytest.raises(InvalidRequestError, match=words):
        read_request(content)


def test_numbers_with_exponents_are_numbers(tmp_path: Path) -> None:
    """8e9 and 1e-4 in a file are the numbers that they are in Python, and text in quotes stays text."""
    file = tmp_path / "sweep.yaml"
    file.write_text(
        "strategies: ['1e3']\nbatch_sizes: [8]\nmemory_limit: 8e9\ntarget_spread: .5e-1\n"
        "options: {learning_rate: 1e-3}\n"
    )
    request = read_request(file)
    assert (request.memory_limit, request.target_spread) == (8e9, 0.05)
    assert request.options == [Options(learning_rate=1e-3)]
    assert request.strategies == ["1e3"]


@pytest.mark.parametrize("text", ["a: [", "- 1\n- 2\n", None])
def test_unreadable_files_are_refused(tmp_path: Path, text: str | None) -> None:
    """Text that is not YAML, YAML that is not a mapping, and no file at all are refused by name."""
    file = tmp_path / "sweep.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(InvalidRequestError, match=r"sweep\.yaml"):
        read_request(file)
