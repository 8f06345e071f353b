from __future__ import annotations

import shutil
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from multislice_nb.errors import CheckpointError, ConfigurationError, InvalidRequestError, SaveError
from multislice_nb.jobs.checkpoints import Checkpoints
from multislice_nb.jobs.data import batches
from multislice_nb.jobs.store import Store
from tests.jobs.buckets import refusing

if TYPE_CHECKING:
    from pathlib import Path

jnp = pytest.importorskip("jax.numpy")
pytest.importorskip("orbax.checkpoint")
pytest.importorskip("grain")


def train(directory: Path | str, until: int, *, keep: int = 5) -> list[list[int]]:
    """Train a sum of record numbers; says which records each step saw."""
    data = batches(list(range(100)), batch_size=4)
    seen = []
    with Checkpoints(directory, every=2, keep=keep) as checkpoints:
        state, start = checkpoints.restore({"sum": jnp.zeros(())}, data)
        for step in range(start + 1, until + 1):
            batch = next(data)
            seen.append(batch.tolist())
            state = {"sum": state["sum"] + batch.sum()}
            checkpoints.after(step, state, data)
    return seen


def restored(directory: Path | str) -> tuple[float, int, list[int]]:
    """The state, the step, and the records that would come next."""
    data = batches(list(range(100)), batch_size=4)
    with Checkpoints(directory) as checkpoints:
        state, step = checkpoints.restore({"sum": jnp.zeros(())}, data)
    return float(state["sum"]), step, next(data).tolist()


@pytest.mark.parametrize("where", ["folder", "bucket"])
def test_training_goes_on_with_the_next_batch(
    request: pytest.FixtureRequest, tmp_path: Path, where: str
) -> None:
    """State and data iterator come back together."""
    place = str(tmp_path) if where == "folder" else f"{request.getfixturevalue('bucket')}/training"
    whole = train(tmp_path / "whole", 9)
    first = train(f"{place}/parts", 5)
    rest = train(f"{place}/parts", 9)
    assert first == whole[:5]
    assert rest == whole[4:]  # step 4 was the last one saved


def test_only_so_many_checkpoints_are_kept(tmp_path: Path) -> None:
    """The oldest go."""
    train(tmp_path, 10, keep=2)
    assert sorted(path.name for path in (tmp_path / "steps").iterdir()) == ["10", "8"]


def damage_truncated(step: Path) -> None:
    """Cut the last byte of the largest file off."""
    largest = max((path for path in step.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-1])


def damage_flipped(step: Path) -> None:
    """Turn a bit over in the metadata."""
    path = next(path for path in step.rglob("_METADATA") if path.is_file())
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.write_bytes(bytes(content))


def damage_missing(step: Path) -> None:
    """Lose a file."""
    next(path for path in step.rglob("manifest.ocdbt") if path.is_file()).unlink()


def damage_manifest(step: Path) -> None:
    """Cut the list of its files in two."""
    manifest = step.parents[1] / "manifests" / f"{step.name}.json"
    manifest.write_bytes(manifest.read_bytes()[:20])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[int]]]:
    """A folder of checkpoints at steps 2, 4 and 6, and the records of all steps."""
    folder = tmp_path_factory.mktemp("trained")
    return folder, train(folder, 6)


@pytest.mark.parametrize("damage", [damage_truncated, damage_flipped, damage_missing, damage_manifest])
def test_a_damaged_checkpoint_is_left_out_with_a_warning(
    tmp_path: Path, trained: tuple[Path, list[list[int]]], damage: Any
) -> None:
    """The one before it is taken, and the damaged one is saved anew when its step comes again."""
    folder, whole = trained
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    damage(tmp_path / "steps" / "6")
    with pytest.warns(RuntimeWarning, match="Checkpoint 6 is left out"):
        total, step, records = restored(tmp_path)
    assert (total, step, records) == (sum(map(sum, whole[:4])), 4, whole[4])
    assert train(tmp_path, 6) == whole[4:]
    assert restored(tmp_path)[1] == 6


def test_what_is_damaged_later_stays_out(tmp_path: Path, trained: tuple[Path, list[list[int]]]) -> None:
    """Another start does not take the files for good that an older checkpoint has by then."""
    shutil.copytree(trained[0], tmp_path, dirs_exist_ok=True)
    damage_flipped(tmp_path / "steps" / "4")
    train(tmp_path, 8)
    for step in (6, 8):
        damage_truncated(tmp_path / "steps" / str(step))
    with pytest.warns(RuntimeWarning, match=r"Checkpoint \d is left out") as told:
        assert restored(tmp_path)[1] == 2
    assert len(told) == 3
    assert [path.name for path in (tmp_path / "manifests").iterdir()] == ["2.json"]


def test_what_is_remembered_of_another_checkpoint_is_forgotten(tmp_path: Path) -> None:
    """A list of files that was left from one that is gone does not speak against the one that is saved now."""
    Store(tmp_path).write_json("manifests/2.json", {"gone": [1, ""]})
    train(tmp_path, 3)
    assert restored(tmp_path)[1] == 2


def test_a_half_written_checkpoint_is_not_one(tmp_path: Path, trained: tuple[Path, list[list[int]]]) -> None:
    """What a killed process left under a temporary name is cleared away."""
    shutil.copytree(trained[0], tmp_path, dirs_exist_ok=True)
    (tmp_path / "steps" / "6").rename(tmp_path / "steps" / "6.orbax-checkpoint-tmp")
    assert restored(tmp_path)[1] == 4
    assert sorted(path.name for path in (tmp_path / "steps").iterdir()) == ["2", "4"]


def test_what_is_broken_in_a_bucket_is_no_checkpoint_either(bucket: str) -> None:
    """There no name is temporary: what the last object of a checkpoint does not confirm, or has changed, is left out."""
    place = Store(f"{bucket}/broken")
    whole = train(place.url, 8)
    place.remove("steps/8/commit_success.txt")
    sizes = place.walk("steps/6")
    largest = f"steps/6/{max(sizes, key=lambda name: sizes[name])}"
    place.write(largest, (place.read(largest) or b"")[:-1])
    with pytest.warns(RuntimeWarning, match="Checkpoint 6 is left out"):
        assert restored(place.url) == (sum(map(sum, whole[:4])), 4, whole[4])
    assert place.list("steps") == ["2", "4"]


def test_one_that_never_became_whole_is_gone_before_others_are_looked_for(bucket: str) -> None:
    """A run that was lost in its first save starts anew; in a bucket, its folder goes with what was in there."""
    place = Store(f"{bucket}/first")
    place.write("steps/3/state/part", b"1")
    with Checkpoints(place.url, every=1) as checkpoints:
        assert place.walk("steps") == {}
        _, step = checkpoints.restore({"sum": jnp.zeros(())})
        assert step == 0
        checkpoints.after(1, {"sum": jnp.zeros(())})
    assert place.list("steps") == ["1"]


def test_a_save_that_failed_is_told_with_the_next_step(bucket: str) -> None:
    """It goes on in the background, and its error does not wait for the next save."""
    checkpoints = Checkpoints(f"{bucket}/refused", every=1000)
    state = {"sum": jnp.ones(())}

    def go_on() -> None:
        limit = time.monotonic() + 60
        while time.monotonic() < limit:
            checkpoints.after(2, state)

    with refusing("ocdbt"):
        checkpoints.save(1, state)
        with pytest.raises(SaveError, match=r"^Checkpoint 1 could not be saved by process 0"):
            go_on()
    checkpoints.close()
    assert restored(f"{bucket}/refused")[1] == 0  # what there is of it is none


def test_what_is_saved_while_an_error_is_handled_is_saved(tmp_path: Path) -> None:
    """As on Ctrl-C: that error is not the save's own."""
    data = batches(list(range(100)), batch_size=4)
    with Checkpoints(tmp_path, every=1000) as checkpoints:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            checkpoints.save(3, {"sum": jnp.ones(())}, data)
    assert restored(tmp_path)[:2] == (1.0, 3)


def test_with_nothing_whole_training_does_not_start_anew_unasked(tmp_path: Path) -> None:
    """Weeks of work are not overwritten from step nought: it is an error that says why."""
    train(tmp_path, 2)
    damage_truncated(tmp_path / "steps" / "2")
    with pytest.warns(RuntimeWarning), pytest.raises(CheckpointError, match="not as it was saved"):
        restored(tmp_path)


def test_another_shape_is_an_error_not_a_fresh_start(tmp_path: Path) -> None:
    """A state that does not fit is told."""
    train(tmp_path, 2)
    with Checkpoints(tmp_path) as checkpoints, pytest.warns(RuntimeWarning), pytest.raises(CheckpointError):
        checkpoints.restore({"sum": jnp.zeros(()), "more": jnp.zeros(3)})


def test_iterators_out_of_step_refuse_another_number_of_processes(tmp_path: Path) -> None:
    """Two different places in the data cannot be one."""
    with Checkpoints(tmp_path) as checkpoints, pytest.raises(CheckpointError, match="2 processes"):
        checkpoints._move(batches([1, 2], batch_size=1), {"states": [{"json": 1}, {"json": 2}]}, 7)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_global_batches_do_not_depend_on_the_number_of_processes(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """One, two and four processes together see the same records in every step."""
    import jax

    monkeypatch.setattr(jax, "process_count", lambda: count)
    shares = []
    for index in range(count):
        monkeypatch.setattr(jax, "process_index", lambda index=index: index)
        data = batches(list(range(50)), batch_size=8, seed=3)
        shares.append([next(data).tolist() for _ in range(10)])
    together = [sorted(record for share in shares for record in share[step]) for step in range(10)]
    monkeypatch.setattr(jax, "process_count", lambda: 1)
    monkeypatch.setattr(jax, "process_index", lambda: 0)
    alone = batches(list(range(50)), batch_size=8, seed=3)
    assert together == [sorted(next(alone).tolist()) for _ in range(10)]


def test_a_batch_that_cannot_be_shared_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says which sizes can."""
    import jax

    monkeypatch.setattr(jax, "process_count", lambda: 3)
    with pytest.raises(InvalidRequestError, match="Take 6 or 9"):
        batches([1, 2, 3], batch_size=8)


def test_outside_a_job_a_directory_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is saved to where nobody looks."""
    monkeypatch.delenv("MULTISLICE_NB_CHECKPOINTS", raising=False)
    with pytest.raises(ConfigurationError, match="No directory"):
        Checkpoints()


def test_a_bucket_needs_what_reaches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without gcsfs it is said before training begins, with what a job must name."""
    monkeypatch.setattr("multislice_nb.jobs.checkpoints.importlib.util.find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match="gcsfs"):
        Checkpoints("gs://bucket/training")
