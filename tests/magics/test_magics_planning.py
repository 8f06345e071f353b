from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from multislice_nb import errors
from multislice_nb.sharding import Model, Parallelism, Plan, Plans, predict

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import TypeAlias

    from IPython.core.interactiveshell import InteractiveShell

    Run: TypeAlias = Callable[[str], Any]


@pytest.fixture(scope="module")
def results(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a sweep on two CPU devices of this machine."""
    folder = tmp_path_factory.mktemp("sweeps")
    (folder / "sweep.yaml").write_text(
        "strategies: [fsdp]\nbatch_sizes: [8, 16]\nsteps: 6\nembedding: 64\nlayers: 1\n"
    )
    path = folder / "measured.jsonl"
    found = run(f"%multislice sweep --local 2 --file {folder / 'sweep.yaml'} --path {path}")
    assert len(found) == 2
    return path


def test_the_documented_numbers_are_told(run: Run) -> None:
    """For v4 the threshold is 22 000 FLOPs per bit, and 2 and 4 slices need 176 000 and 352 000 tokens each."""
    told = run("%multislice intensity v4 --slices 2,4 --tokens-per-slice 350000")
    for form in (repr(told), told._repr_html_()):
        for number in ("22 000", "176 000", "352 000", "43 750"):
            assert number in form


def test_a_sweep_can_be_described_in_a_file_and_run_here(
    results: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--file` and `--local` measure without slices; figures are of the last sweep or of its file."""
    assert "FLOP/s per chip" in run(f"%multislice plot tflops {results}").axes[0].get_ylabel()
    assert run("%multislice plot tflops --theme dark") is not None
    with pytest.raises(errors.MagicError, match="--steps and --file exclude"):
        run(f"%multislice sweep --file {results} --steps 3")
    with pytest.raises(errors.InvalidRequestError, match="measured on"):
        run(f"%multislice plot predicted {results}")


def test_two_sweeps_are_compared(results: Path, run: Run) -> None:
    """A sweep does not differ from itself."""
    same = run(f"%multislice compare {results} {results}")
    assert [change.verdict for change in same.changes] == ["no difference seen"] * 2


def test_plans_are_made_drawn_and_put_side_by_side(
    emulator_home: Path, run: Run, shell: InteractiveShell
) -> None:
    """The compiler finds the largest batch; one batch gives a plan, two give plans; figures show the last ones."""
    pytest.importorskip("libtpu")
    model = "--accelerator-type v4-8 --strategy fsdp --embedding 128 --layers 1"
    shell.user_ns["found"] = found = run(f"%multislice largest-batch {model} --resolution 1")
    assert found.plan.fits
    plan = run(f"%multislice plan {model} --batch {found.batch}")
    assert plan.cached
    assert plan.flops == found.plan.flops
    plans = run(f"%multislice plan {model} --batches {found.batch},{found.too_large}")
    assert [one.fits for one in plans] == [True, False]
    for figure in ("roofline", "roofline found", "breakdown", "traffic"):
        assert not run(f"%multislice plot {figure}").table.empty
    with pytest.raises(errors.MagicError, match="model is no workload"):
        run(f"%multislice plan {model} --batch 256 --workload model")


def test_a_roofline_has_the_plans_of_its_generation(run: Run, shell: InteractiveShell) -> None:
    """Plans for other slices are not marked below roofs that are not theirs; of several, one has to be named."""

    def planned(kind: str) -> Plan:
        predicted = predict(Model.mlp(), kind, batch_per_chip=16384, strategy="fsdp")
        numbers: dict[str, Any] = dict.fromkeys(
            ("hbm_bytes", "hbm_limit_bytes", "flops", "bytes_accessed", "compile_seconds"), 1e9
        )
        return Plan(
            title="mlp", accelerator_type=kind, topology="", slices=1, parallelism=Parallelism(ici_fsdp=4), batch=1,
            fits=True, remat_flops=0.0, loop_flops=0.0, ici={}, dcn={}, compiler="", cached=False,
            prediction=predicted, **numbers,
        )  # fmt: skip

    shell.user_ns["mixed"] = Plans([planned("v4-8"), planned("v5litepod-8"), planned("v5litepod-16")])
    for kind, marked in (("v4", 1), ("v5e", 2)):
        table = run(f"%multislice plot roofline mixed --generation {kind}").table
        assert list(table["what"]).count("plan") == marked
    with pytest.raises(errors.MagicError, match="of one generation, not of v4 and v5e"):
        run("%multislice plot roofline mixed")
    with pytest.raises(errors.MagicError, match="not of v4 and v5p"):
        run("%multislice plot roofline --generation v4,v5p")
    with pytest.raises(errors.MagicError, match="mixed has no plan for v6e"):
        run("%multislice plot roofline mixed --generation v6e")


@pytest.mark.parametrize(
    "what",
    [
        "--accelerator-type v4-8 --strategy frob",
        "--accelerator-type v4-9",
        "--accelerator-type v4-8 --strategies fsdp,tensor --largest",
    ],
)
def test_nothing_is_said_to_be_compiled_that_cannot_be(
    run: Run, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    """A strategy or slice that there is not is told, and nothing else."""
    with pytest.raises(errors.MultisliceError):
        run(f"%multislice plan {what} --batch 256")
    assert "Compiling" not in capsys.readouterr().out


def test_notebooks_run_with_parameters(run: Run, tmp_path: Path) -> None:
    """`experiment` lists notebooks, runs one with typed parameters, or every combination; `runs` has them all."""
    nbformat = pytest.importorskip("nbformat")
    cell = nbformat.v4.new_code_cell
    book = nbformat.v4.new_notebook(
        cells=[
            cell("width = 1\nname = 'x'", metadata={"tags": ["parameters"]}),
            cell("from multislice_nb.experiments import record\nrecord(area=width**2, name=name)"),
        ]
    )
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(book, tmp_path / "area.ipynb")
    assert "00_quickstart" in repr(run("%multislice experiment"))
    done = run(f"%multislice experiment {tmp_path / 'area.ipynb'} -p width 3 --folder {tmp_path / 'runs'}")
    assert done.results["area"] == 9
    run(f"%multislice experiment {tmp_path / 'area.ipynb'} -m width 3,4 --folder {tmp_path / 'runs'}")
    frame = run(f"%multislice runs {tmp_path / 'runs'}").frame
    assert sorted(frame["area"]) == [9, 16]
    with pytest.raises(errors.MagicError, match="width is given by -p and by -m"):
        run(f"%multislice experiment {tmp_path / 'area.ipynb'} -m width 3,4 -p width 1")
