"""The table's part about measuring: sweep, plot, compare, experiment notebooks."""

from __future__ import annotations

from multislice_nb.magics.arguments import Argument, Subcommand, integer, integers, number, words
from multislice_nb.magics.grammar_planning import RESULTS

__all__ = ["EXPERIMENTS", "FIGURES"]

FIGURES = ("tflops", "intensity", "predicted", "weak-scaling", "roofline", "breakdown", "memory", "traffic")

_SWEEP = Subcommand(
    name="sweep",
    summary="Measure TFLOP/s per chip for strategies and batch sizes on the attached workers.",
    arguments=(
        Argument(
            name="strategies",
            flags=("--strategies",),
            convert=words,
            values="strategies",
            help="Sharding strategies, as fsdp,tensor,fsdp+tensor",
            unless=("file",),
        ),
        Argument(
            name="batch_sizes",
            flags=("--batch-sizes",),
            convert=integers,
            metavar="SIZES",
            help="Rows of the batch per JAX device, as 64,128,256",
            unless=("file",),
        ),
        Argument(
            name="embedding",
            flags=("--embedding",),
            convert=integers,
            help="Width of the MLP; several for a grid",
        ),
        Argument(
            name="layers", flags=("--layers",), convert=integers, help="Depth of the MLP; several for a grid"
        ),
        Argument(
            name="slices",
            flags=("--slices",),
            convert=integers,
            help="How many slices take part, as 1,2,4 for weak scaling; all if left out",
        ),
        Argument(name="steps", flags=("--steps",), convert=integer, help="Steps timed in a round"),
        Argument(name="warmup", flags=("--warmup",), convert=integer, help="Steps run before each round"),
        Argument(
            name="target_spread",
            flags=("--target-spread",),
            convert=number,
            metavar="SHARE",
            help="Repeat rounds until the spread is at most this share of the median",
        ),
        Argument(
            name="max_steps",
            flags=("--max-steps",),
            convert=integer,
            help="But time no more steps than these",
        ),
        Argument(
            name="timeout",
            flags=("--timeout",),
            convert=number,
            metavar="SECONDS",
            help="What one configuration may take, compilation included",
        ),
        Argument(
            name="path",
            flags=("--path",),
            metavar="FILE",
            values="files",
            help="Results file; one that exists is continued",
        ),
        Argument(
            name="file",
            flags=("--file",),
            values="files",
            help="A YAML file that describes the sweep, instead of the flags above",
        ),
        Argument(
            name="cluster",
            flags=("--cluster",),
            metavar="NAME",
            values="clusters",
            help="Attached cluster",
            excludes="where",
        ),
        Argument(
            name="local",
            flags=("--local",),
            convert=integer,
            metavar="DEVICES",
            help="On so many CPU devices of this machine; 0 for whatever JAX finds here",
            excludes="where",
        ),
    ),
    examples=(
        "--strategies fsdp,tensor,fsdp+tensor --batch-sizes 64,128,256 --embedding 256",
        "--file sweep.yaml --path sweeps/night.jsonl",
    ),
    python="ms.sweep(strategies=[…], batch_sizes=[…])",
)

_PLOT = Subcommand(
    name="plot",
    summary="Draw TFLOP/s or operational intensity against batch size, rooflines, scaling, or plans.",
    arguments=(
        Argument(name="figure", metavar="FIGURE", required=True, choices=FIGURES, help="What to draw"),
        Argument(
            name="results",
            metavar="RESULTS",
            values="results",
            help=f"{RESULTS}; the last sweep's if left out. Of roofline, breakdown, memory and traffic: a variable with "
            "plans; the last ones if left out",
        ),
        Argument(
            name="generation",
            flags=("--generation",),
            convert=words,
            values="generations",
            help="TPU generations for intensity without results, as v4,v5p; one for roofline",
        ),
        Argument(name="slices", flags=("--slices",), convert=integers, help="Numbers of slices, as 2,4"),
        Argument(name="exact", flags=("--exact",), switch=True, help="A ring all-reduce's exact traffic"),
        Argument(name="theme", flags=("--theme",), choices=("light", "dark"), help="Colours"),
    ),
    examples=(
        "tflops",
        "tflops sweeps/demo.jsonl",
        "intensity --generation v4 --slices 2,4",
        "roofline --generation v4",
    ),
    python="results.plot_tflops(), ms.plot_intensity('v4', slices=[2, 4])",
)

EXPERIMENTS: tuple[Subcommand, ...] = (
    _SWEEP,
    _PLOT,
    Subcommand(
        name="compare",
        summary="Compare two sweeps: which configurations are faster, by how much, and whether it is noise.",
        arguments=(
            Argument(name="before", metavar="BEFORE", required=True, values="results", help=RESULTS),
            Argument(name="after", metavar="AFTER", required=True, values="results", help=RESULTS),
            Argument(
                name="level", flags=("--level",), convert=number, help="Of significance; 0.05 if left out"
            ),
        ),
        examples=("sweeps/old.jsonl sweeps/new.jsonl",),
        python="ms.experiments.compare('old.jsonl', 'new.jsonl')",
    ),
    Subcommand(
        name="experiment",
        summary="Run an experiment notebook with parameters; with several values, for each combination.",
        arguments=(
            Argument(
                name="name",
                metavar="NAME",
                values="experiments",
                help="As 03, 03_sharding_ici or a notebook's path; the list of all if left out",
            ),
            Argument(
                name="parameters",
                flags=("-p", "--parameter"),
                named=True,
                values="parameters",
                help="A parameter and its value; may be repeated",
            ),
            Argument(
                name="matrix",
                flags=("-m", "--matrix"),
                named=True,
                values="parameters",
                help="A parameter and its values with commas between them; may be repeated",
            ),
            Argument(
                name="folder",
                flags=("--folder",),
                values="files",
                help="Where runs and their index go; runs if left out",
            ),
        ),
        examples=("", "00", "00 -p embedding 256", "00 -m embedding 128,256 -p steps 3"),
        left="its kernel was ended; %multislice runs shows how far it came.",
        python="ms.experiments.run('00', embedding=256), ms.experiments.run_matrix('00', {…})",
    ),
    Subcommand(
        name="runs",
        summary="List the runs of experiment notebooks, with what each recorded.",
        arguments=(
            Argument(
                name="folder", metavar="FOLDER", values="files", help="Where they are; runs if left out"
            ),
        ),
        examples=("",),
        python="ms.experiments.Runs.load('runs')",
    ),
)
