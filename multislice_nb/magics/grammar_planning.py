"""The table's part about deciding: sweep, plot, plan, recommend."""

from __future__ import annotations

from multislice_nb.magics.arguments import Argument, Subcommand, integer, integers, number, words

__all__ = ["PLANNING", "PLOT", "SWEEP"]

SWEEP = Subcommand(
    name="sweep",
    summary="Measure TFLOP/s per chip for strategies and batch sizes on the attached workers.",
    arguments=(
        Argument(
            name="strategies",
            flags=("--strategies",),
            convert=words,
            required=True,
            values="strategies",
            help="Sharding strategies, as fsdp,tensor,fsdp+tensor",
        ),
        Argument(
            name="batch_sizes",
            flags=("--batch-sizes",),
            convert=integers,
            metavar="SIZES",
            required=True,
            help="Rows of the batch per JAX device, as 64,128,256",
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
        Argument(name="steps", flags=("--steps",), convert=integer, help="Steps timed in a round"),
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
            name="cluster", flags=("--cluster",), metavar="NAME", values="clusters", help="Attached cluster"
        ),
    ),
    examples=("--strategies fsdp,tensor,fsdp+tensor --batch-sizes 64,128,256 --embedding 256",),
    python="ms.sweep(strategies=[…], batch_sizes=[…])",
)

PLOT = Subcommand(
    name="plot",
    summary="Draw TFLOP/s against batch size, or operational intensity with the hardware's thresholds.",
    arguments=(
        Argument(
            name="figure",
            metavar="FIGURE",
            required=True,
            choices=("tflops", "intensity"),
            help="What to draw",
        ),
        Argument(
            name="results",
            metavar="RESULTS",
            values="results",
            help="A variable with results, or their file; the last sweep's if left out",
        ),
        Argument(
            name="generation",
            flags=("--generation",),
            convert=words,
            values="generations",
            help="TPU generations for intensity without results, as v4,v5p",
        ),
        Argument(name="slices", flags=("--slices",), convert=integers, help="Numbers of slices, as 2,4"),
        Argument(name="exact", flags=("--exact",), switch=True, help="A ring all-reduce's exact traffic"),
        Argument(name="theme", flags=("--theme",), choices=("light", "dark"), help="Colours"),
    ),
    examples=("tflops", "tflops sweeps/demo.jsonl", "intensity --generation v4 --slices 2,4"),
    python="results.plot_tflops(), ms.plot_intensity('v4', slices=[2, 4])",
)

_TYPE = Argument(
    name="accelerator_type",
    flags=("--accelerator-type",),
    required=True,
    values="accelerator_types",
    help="What each slice is, as v4-16",
)
_SLICES = Argument(name="slices", flags=("--slices", "--node-count"), convert=integer, help="How many slices")

PLANNING = (
    SWEEP,
    PLOT,
    Subcommand(
        name="plan",
        summary="Ask XLA's TPU compiler whether a training step fits and what it moves; needs no TPU.",
        arguments=(
            _TYPE,
            _SLICES,
            Argument(
                name="batch",
                flags=("--batch",),
                convert=integer,
                required=True,
                metavar="ROWS",
                help="Rows of the batch per device",
            ),
            Argument(
                name="strategy", flags=("--strategy",), values="strategies", help="As fsdp or fsdp+tensor"
            ),
            Argument(name="embedding", flags=("--embedding",), convert=integer, help="Width of the MLP"),
            Argument(name="layers", flags=("--layers",), convert=integer, help="Depth of the MLP"),
        ),
        examples=("--accelerator-type v4-16 --slices 2 --strategy fsdp --batch 131072 --embedding 2048",),
        python="ms.plan(accelerator_type='v4-16', slices=2, strategy='fsdp', batch=131072)",
    ),
    Subcommand(
        name="recommend",
        summary="Rank the ways to divide training over slices, with the reason for each.",
        arguments=(
            _TYPE,
            _SLICES,
            Argument(
                name="parameters",
                flags=("--parameters",),
                convert=number,
                required=True,
                help="Of a Transformer, as 8e9",
            ),
            Argument(
                name="tokens_per_slice",
                flags=("--tokens-per-slice",),
                convert=number,
                required=True,
                metavar="TOKENS",
                help="Batch of a slice in tokens per step",
            ),
        ),
        examples=("--accelerator-type v4-128 --slices 2 --parameters 8e9 --tokens-per-slice 350000",),
        python="ms.recommend('v4-128', 2, parameters=8e9, tokens_per_slice=350_000)",
    ),
)
