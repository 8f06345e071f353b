from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import psutil
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from multislice_nb import sharding
from multislice_nb.errors import InvalidRequestError, ParallelismError, PlanError
from multislice_nb.sharding import Model, child

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.sharding.reference_program import build
else:
    from reference_program import build  # pytest puts this folder on the path


@pytest.fixture(autouse=True)
def without_libtpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The planner as on a machine without libtpu, with a cache of its own."""
    monkeypatch.setattr(child, "has_libtpu", lambda: False)
    monkeypatch.setenv("MULTISLICE_NB_HOME", str(tmp_path))


def test_without_libtpu_the_cpu_compiler_and_closed_forms_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """FLOPs are those of the compiled program, bytes and memory closed forms, and the plan says so.

    It is kept for another time, but not for a mesh of the same shape with its devices in another order, and it is
    made all the same where it cannot be kept.
    """
    model = Model.mlp(128, 2)
    small = partial(build, width=128, layers=2)
    first = sharding.plan(small, accelerator_type="v4-16", slices=2, batch=512, model=model, title="mlp <2>")
    assert first.flops == pytest.approx(model.step_flops(512), rel=0.05)
    assert first.fits is None
    moved = sharding.traffic(model, sharding.Parallelism(ici_fsdp=8, dcn_data=2), 512)
    assert dict(first.ici) == dict(moved.ici)
    assert dict(first.dcn) == dict(moved.dcn_payload)
    assert "libtpu is not installed" in str(first)
    assert "mlp &lt;2&gt;" in first._repr_html_()
    assert first.prediction is not None
    again = sharding.plan(small, accelerator_type="v4-16", slices=2, batch=512, model=model)
    assert (first.cached, again.cached) == (False, True)
    assert again.flops == first.flops
    crossing = sharding.Parallelism(ici_data=2, ici_fsdp=4, dcn_fsdp=2)
    assert crossing.mesh_shape == first.parallelism.mesh_shape
    assert not sharding.plan(small, accelerator_type="v4-16", slices=2, batch=512, strategy=crossing).cached
    monkeypatch.setenv("MULTISLICE_NB_HOME", __file__)  # no folder can be made in it, whoever asks
    other = sharding.plan(small, accelerator_type="v4-16", slices=2, batch=256)
    assert not other.cached
    assert "not kept" in other.notes[-1]
    assert (other.hbm_bytes, dict(other.ici), other.prediction) == (None, {}, None)


def test_strategies_are_planned_side_by_side() -> None:
    """All advised strategies are compiled, in order, and one that does not fit is refused before any is."""
    plans = sharding.compare_plans(
        partial(build, width=64, layers=1), accelerator_type="v4-8", batches=[64], model=Model.mlp(64, 1)
    )
    assert [plan.parallelism.name for plan in plans] == [
        "4-way FSDP",
        "2-way FSDP + 2-way tensor",
        "4-way tensor",
    ]
    assert len(plans.table) == 3
    assert str(plans).count("\n") == 3
    assert "<table" in plans._repr_html_()
    with pytest.raises(ParallelismError):
        sharding.compare_plans(
            build, accelerator_type="v4-8", strategies=["fsdp", "3-way FSDP"], batches=[64]
        )


def test_any_jitted_function_with_shapes_is_planned() -> None:
    """A function typed into a notebook, with partition specs and a scan, is planned with its loop multiplied out."""

    @jax.jit
    def forward(weights: jax.Array, x: jax.Array) -> jax.Array:
        def layer(carry: jax.Array, weight: jax.Array) -> tuple[jax.Array, None]:
            product = jax.lax.with_sharding_constraint(carry @ weight, PartitionSpec("fsdp"))
            return product, None

        return jax.lax.scan(layer, x, weights)[0]

    arguments = (jax.ShapeDtypeStruct((6, 64, 64), jnp.float32), jax.ShapeDtypeStruct((256, 64), jnp.float32))
    specs = (PartitionSpec(None, "fsdp"), PartitionSpec("fsdp"))
    found = sharding.plan(forward, args=arguments, specs=specs, accelerator_type="v4-8")
    each = 2 * 64 * 64 * 64
    assert found.loop_flops == 5 * each
    assert found.flops == pytest.approx(6 * each, rel=0.05)
    assert "loops" in found.notes[-1]
    draws = jax.jit(lambda key, x, by: by * x + jax.random.normal(key, x.shape))
    drawn = sharding.plan(draws, args=(jax.random.key(0), arguments[1], 2.0), accelerator_type="v4-8")
    assert drawn.flops is not None
    assert drawn.flops > 2 * 256 * 64
    with pytest.raises(InvalidRequestError, match="An argument is a str"):
        sharding.plan(draws, args=(jax.random.key(0), arguments[1], "2"), accelerator_type="v4-8")
    with pytest.raises(PlanError, match="does not trace"):
        sharding.plan(forward, args=arguments[:1], accelerator_type="v4-8")
    with pytest.raises(InvalidRequestError, match="tree"):
        sharding.plan(forward, args=arguments, specs=specs[:1], accelerator_type="v4-8")
    with pytest.raises(InvalidRequestError, match="is not jitted"):
        sharding.plan(lambda x: x, args=arguments, accelerator_type="v4-8")


def unbounded(mesh: Mesh) -> tuple[Any, Any]:
    """A program whose loop depends on its data."""
    x = jax.ShapeDtypeStruct((8,), jnp.float32, sharding=NamedSharding(mesh, PartitionSpec()))
    return jax.jit(lambda x: jax.lax.while_loop(lambda y: y[0] > 0, lambda y: y - 1, x)), (x,)


def broken(mesh: Mesh) -> tuple[Any, Any]:
    """A program that does not trace."""
    raise KeyError(f"no layer {mesh.size}")


def test_a_program_at_fault_says_why() -> None:
    """A loop of unknown length and an exception of the program are errors that name them; the traceback is kept."""
    with pytest.raises(PlanError, match="does not know how often while"):
        sharding.plan(unbounded, accelerator_type="v4-8")
    with pytest.raises(PlanError, match="KeyError: 'no layer 4'") as caught:
        sharding.plan(broken, accelerator_type="v4-8")
    assert "in broken" in caught.value.detail


def slow(mesh: Mesh) -> tuple[Any, Any]:
    """A program that takes its time."""
    time.sleep(60)
    return unbounded(mesh)


def test_a_deadline_ends_the_process() -> None:
    """A compilation that takes too long is an error, and its process is gone."""
    with pytest.raises(PlanError, match="took more than 2 s"):
        sharding.plan(slow, accelerator_type="v4-8", timeout=2)
    mine = psutil.Process().children(recursive=True)
    assert not [one for one in mine if "multislice_nb.sharding.compiling" in one.cmdline()]


def until(look: Callable[[], Any]) -> Any:
    """What is seen once there is something to see."""
    end = time.monotonic() + 60
    while not (seen := look()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
    return seen


def in_a_process_of_its_own(code: str, folder: Path) -> psutil.Popen:
    """A notebook that imports from a folder and has its temporary folders there."""
    environment = os.environ | {"TMPDIR": str(folder), "PYTHONPATH": str(folder)}
    return psutil.Popen([sys.executable, "-c", code], env=environment, stderr=subprocess.DEVNULL)


def test_a_killed_notebook_leaves_nothing(tmp_path: Path) -> None:
    """When the process that plans is killed, its compilation ends and takes its folder along."""
    (tmp_path / "sleeper.py").write_text("import time\ndef slow(mesh):\n    time.sleep(600)\n")
    code = (
        "import sleeper\nfrom multislice_nb import sharding\n"
        "sharding.plan(sleeper.slow, accelerator_type='v4-8')"
    )
    notebook = in_a_process_of_its_own(code, tmp_path)
    until(lambda: list(tmp_path.glob("multislice_nb-plan-*/request")))
    (compiling,) = until(notebook.children)
    until(lambda: "multislice_nb.sharding.compiling" in compiling.cmdline())
    notebook.kill()
    notebook.wait()
    until(lambda: not compiling.is_running() or compiling.status() == psutil.STATUS_ZOMBIE)
    assert not list(tmp_path.glob("multislice_nb-plan-*"))


def test_an_interrupt_ends_all_compilations(tmp_path: Path) -> None:
    """Ctrl-C while several strategies compile and others wait for their turn ends at once, and nothing goes on."""
    (tmp_path / "sleeper.py").write_text("import time\ndef slow(mesh, batch):\n    time.sleep(600)\n")
    code = (
        "import sleeper\nfrom multislice_nb import sharding\n"
        "sharding.compare_plans(sleeper.slow, accelerator_type='v4-8', batches=range(1, 4))"
    )
    notebook = in_a_process_of_its_own(code, tmp_path)
    compiling = until(notebook.children)
    until(lambda: "multislice_nb.sharding.compiling" in compiling[0].cmdline())
    notebook.send_signal(signal.SIGINT)
    assert notebook.wait(60) == -signal.SIGINT
    assert not [one for one in compiling if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]
    assert not list(tmp_path.glob("multislice_nb-plan-*"))


def test_folders_of_the_dead_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An old folder whose process is gone is removed before the next compilation; others stay."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    old, fresh, ours = (
        tmp_path / f"multislice_nb-plan-{owner}-{name}"
        for owner, name in ((gone.pid, "old"), (gone.pid, "fresh"), (os.getpid(), "ours"))
    )
    for folder in (old, fresh, ours):
        folder.mkdir()
    for folder in (old, ours):
        os.utime(folder, (0, 0))
    child._clear_stale()
    assert {path.name for path in tmp_path.iterdir()} == {fresh.name, ours.name}


def test_what_cannot_be_sent_is_refused() -> None:
    """A program that holds a lock is refused before any process is started."""
    import threading

    lock = threading.Lock()
    with pytest.raises(InvalidRequestError, match="cannot be sent to the compiling process"):
        sharding.plan(lambda mesh: (mesh, lock), accelerator_type="v4-8")


def test_only_the_tpu_compiler_knows_the_largest_batch() -> None:
    """Without libtpu the largest batch is not guessed."""
    with pytest.raises(PlanError, match="libtpu is not installed"):
        sharding.largest_batch(build, accelerator_type="v4-8")
