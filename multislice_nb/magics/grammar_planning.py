"""The table's part about deciding before anything runs: plan, largest batch, intensity, advice."""

from __future__ import annotations

from multislice_nb.magics.arguments import Argument, Subcommand, count, integer, integers, number, words
from multislice_nb.magics.shared import ACCELERATOR_TYPE

__all__ = ["PLANNING", "RESULTS"]

RESULTS = "A variable with results, or their file"

_TYPE = ACCELERATOR_TYPE.but(required=True)
_SLICES = Argument(name="slices", flags=("--slices", "--node-count"), convert=integer, help="How many slices")
_MODEL = (
    Argument(name="embedding", flags=("--embedding",), convert=count, help="Width of the MLP"),
    Argument(name="layers", flags=("--layers",), convert=count, help="Depth of the MLP"),
    Argument(
        name="workload",
        flags=("--workload",),
        metavar="VARIABLE",
        values="variables",
        help="A variable with a workload, such as a Transformer, instead of the MLP",
    ),
)

PLANNING: tuple[Subcommand, ...] = (
    Subcommand(
        name="plan",
        summary="Ask XLA's TPU compiler whether a training step fits and what it moves; needs no TPU.",
        arguments=(
            _TYPE,
            _SLICES,
            Argument(
                name="strategies",
                flags=("--strategy", "--strategies"),
                convert=words,
                values="strategies",
                help="As fsdp; several are compared, and so are all advised ones for `all`",
            ),
            Argument(
                name="batches",
                flags=("--batch", "--batches"),
                convert=integers,
                required=True,
                metavar="ROWS",
                help="Rows of the batch per device; several are compared",
            ),
            Argument(
                name="largest",
                flags=("--largest",),
                switch=True,
                help="With one strategy and one batch: look for the largest batch that fits too, ten times as long",
            ),
            *_MODEL,
        ),
        examples=(
            "--accelerator-type v4-16 --slices 2 --strategy fsdp --batch 131072 --embedding 2048",
            "--accelerator-type v4-16 --slices 2 --strategies fsdp,tensor --batches 65536,131072",
        ),
        left="plans that were made by then are kept, so that the same line goes on from there.",
        python="ms.plan(accelerator_type='v4-16', slices=2, strategy='fsdp', batch=131072)",
    ),
    Subcommand(
        name="largest-batch",
        summary="Find the largest batch that fits into HBM, and where rematerialisation begins; needs no TPU.",
        arguments=(
            _TYPE,
            _SLICES,
            Argument(
                name="strategy", flags=("--strategy",), values="strategies", help="As fsdp or fsdp+tensor"
            ),
            *_MODEL,
            Argument(
                name="resolution",
                flags=("--resolution",),
                convert=number,
                metavar="SHARE",
                help="How close to come, as a share of the batch; 0.25 if left out",
            ),
        ),
        examples=("--accelerator-type v4-16 --strategy fsdp --embedding 2048",),
        left="plans that were made by then are kept, so that the same line goes on from there.",
        python="ms.largest_batch(accelerator_type='v4-16', strategy='fsdp')",
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
    Subcommand(
        name="intensity",
        summary="Tell from which batch on DCN does not slow training down, in FLOPs per bit and in tokens.",
        arguments=(
            Argument(
                name="generation",
                metavar="GENERATION",
                required=True,
                values="generations",
                help="TPU generation, as v4",
            ),
            Argument(name="slices", flags=("--slices",), convert=integers, help="Numbers of slices, as 2,4"),
            Argument(
                name="tokens_per_slice",
                flags=("--tokens-per-slice",),
                convert=number,
                metavar="TOKENS",
                help="And what a batch of so many tokens in a slice has",
            ),
            Argument(name="exact", flags=("--exact",), switch=True, help="A ring all-reduce's exact traffic"),
        ),
        examples=("v4 --slices 2,4", "v4 --slices 2 --tokens-per-slice 350000"),
        python="ms.sharding.smallest_batch('v4', slices=2), ms.sharding.operational_intensity(350_000)",
    ),
)
