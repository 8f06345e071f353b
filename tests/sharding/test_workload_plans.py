from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from multislice_nb.errors import ParallelismError, PlanError
from multislice_nb.experiments import Options, planning
from multislice_nb.experiments.transformer import Transformer
from multislice_nb.experiments.workload import MLP
from multislice_nb.sharding import Model, child

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def without_libtpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The planner as on a machine without libtpu, with a cache of its own."""
    monkeypatch.setattr(child, "has_libtpu", lambda: False)
    monkeypatch.setenv("MULTISLICE_NB_HOME", str(tmp_path))


def test_a_sweeps_workload_is_planned() -> None:
    """The model that sweeps measure is planned by its name and sizes, with the FLOPs that its step has."""
    found = planning.plan(accelerator_type="v4-16", slices=2, batch=512, embedding=128, layers=2)
    assert found.title == "mlp, embedding 128, layers 2"
    assert found.parallelism.name == "8-way FSDP + 2-way data over DCN"
    assert found.flops == pytest.approx(Model.mlp(128, 2).step_flops(512), rel=0.05)
    assert found.prediction is not None
    with pytest.raises(PlanError, match="Only the TPU compiler knows what fits"):
        planning.plan(accelerator_type="v4-16", batch=512, embedding=128, largest=True)


def test_closed_forms_know_of_layers_computed_again() -> None:
    """A step that computes layers again keeps less and computes a third more, by closed form too."""
    step = {"accelerator_type": "v4-8", "batch": 4096, "embedding": 128, "layers": 4}
    kept = planning.plan(**step)  # type: ignore[arg-type]  # of several types
    again = planning.plan(**step, options=Options(remat=True))  # type: ignore[arg-type]
    assert kept.hbm_bytes is not None
    assert again.hbm_bytes is not None
    assert again.hbm_bytes < 0.6 * kept.hbm_bytes
    assert kept.prediction is not None
    assert again.prediction is not None
    assert again.prediction.flops / kept.prediction.flops == pytest.approx(4 / 3, rel=0.05)
    assert "computed again" in again.title


def test_sizes_that_do_not_divide_are_refused_first() -> None:
    """A strategy that the model's sizes do not divide is refused before a process is started."""
    with pytest.raises(ParallelismError, match="does not divide"):
        planning.plan(MLP(embedding=36), accelerator_type="v4-16", batch=8)
    with pytest.raises(ParallelismError, match="does not divide"):
        planning.largest_batch(MLP(embedding=36), accelerator_type="v4-16")
    with pytest.raises(ParallelismError, match="does not divide"):
        planning.compare_plans(MLP(embedding=36), accelerator_type="v4-16", strategies=["fsdp"], batches=[8])


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture]
)  # which changes nothing between examples
@given(
    st.sampled_from([64, 256]),
    st.integers(1, 6),
    st.integers(1, 512),
    st.integers(1, 4096),
    st.integers(1, 64),
)
def test_the_cost_models_decoder_is_the_one_that_is_swept(
    embedding: int, layers: int, sequence: int, vocabulary: int, rows: int
) -> None:
    """Its FLOPs are those of the workload's matrix products, and its parameters all but the gains."""
    swept = Transformer(embedding, layers, heads=4, sequence=sequence, vocabulary=vocabulary)
    model = Model.decoder(
        embedding=embedding, layers=layers, heads=4, sequence=sequence, vocabulary=vocabulary
    )
    assert model.step_flops(rows * sequence) == pytest.approx(swept.matmul_flops(rows))
    assert swept.parameters - model.parameters == (2 * layers + 1) * embedding
