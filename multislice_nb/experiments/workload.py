"""What is trained when a sharding strategy is measured.

A workload is a model in pure functions: parameters, a batch, a loss, and how each is laid over the mesh axes
(data, fsdp, tensor). It says nothing of devices, optimisers or time: `training` makes a step of it, `measure`
times that step on the workers, and the ahead-of-time compiler lowers the same step for a TPU that is not there.

The axes keep JAX's usual meaning: the batch is split over data and fsdp, the features over tensor, the parameters
over fsdp and tensor, and copied over data.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from multislice_nb.errors import InvalidRequestError, ParallelismError
from multislice_nb.experiments import noise
from multislice_nb.experiments.gather import gathered

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from multislice_nb.sharding import Parallelism

Tree: TypeAlias = Any
"""A pytree of arrays, shapes or partition specs."""

Constrain: TypeAlias = "Callable[[jax.Array, PartitionSpec], jax.Array]"
"""Pins an intermediate array to a partition spec on the mesh in use."""


class Workload(Protocol):
    """A model that can be measured. Instances are frozen, hashable and picklable."""

    def __hash__(self) -> int: ...

    @property
    def name(self) -> str:
        """One word for results files, as in `mlp`."""

    @property
    def parameters(self) -> int:
        """Number of parameters of the whole model."""

    @property
    def tokens_per_example(self) -> int:
        """Tokens in one row of the batch."""

    @property
    def settings(self) -> Mapping[str, int | str]:
        """What distinguishes it from other instances: columns of a results file."""

    @property
    def splits(self) -> Mapping[str, tuple[int, ...]]:
        """Sizes that each mesh axis has to divide, by axis name."""

    def init(self, key: jax.Array) -> Tree:
        """Parameters, drawn at random."""

    def parameter_specs(self) -> Tree:
        """How each parameter is laid over the mesh: the same tree, of partition specs."""

    def batch(self, key: jax.Array, size: int) -> Tree:
        """A batch of `size` rows over all devices, drawn at random."""

    def batch_specs(self) -> Tree:
        """How the batch is laid over the mesh."""

    def loss(self, params: Tree, batch: Tree, constrain: Constrain, *, remat: bool = False) -> jax.Array:
        """One number to minimise. `remat` computes a layer again in the backward pass rather than keep it."""

    def matmul_flops(self, batch: int) -> float:
        """FLOPs of the matrix products of one training step over a batch of `batch` rows, on all devices."""


ACTIVATIONS = PartitionSpec(("data", "fsdp"), "tensor")
PARAMETER = PartitionSpec("tensor", "fsdp")
IN_USE = PartitionSpec("tensor", None)


@dataclasses.dataclass(frozen=True, slots=True)
class MLP:
    """Layers of two matrix products, [D, 4D] and [4D, D], each followed by a sigmoid.

    The model of the Multislice overview's sharding benchmark: all of its work is in matrix products whose shapes
    are a transformer's, so that what a step costs beside them is the strategy's doing.

    The loss is the mean of the outputs: their sum would drive large batches into saturation within a step, and
    zeros draw less power than numbers. The sigmoid after the last product keeps its gradient from being constant,
    which the compiler would use to drop a matrix product.

    Attributes:
        embedding: D, features of a token.
        layers: L.
        dtype: Of parameters and activations.
    """

    embedding: int = 2048
    layers: int = 4
    dtype: str = "bfloat16"

    def __post_init__(self) -> None:
        check_sizes("The MLP", embedding=self.embedding, layers=self.layers)

    @property
    def name(self) -> str:
        """`mlp`."""
        return "mlp"

    @property
    def parameters(self) -> int:
        """8 D^2 L."""
        return 8 * self.embedding**2 * self.layers

    @property
    def tokens_per_example(self) -> int:
        """One: each row of the batch is a token."""
        return 1

    @property
    def settings(self) -> Mapping[str, int | str]:
        """Embedding, layers and dtype."""
        return {"embedding": self.embedding, "layers": self.layers, "dtype": self.dtype}

    @property
    def splits(self) -> Mapping[str, tuple[int, ...]]:
        """D is split over fsdp in the parameters and over tensor in the activations."""
        return {"fsdp": (self.embedding,), "tensor": (self.embedding,)}

    def init(self, key: jax.Array) -> Tree:
        """For each layer a pair of matrices [4D, D], scaled so that the sigmoids do not saturate."""
        shape = (4 * self.embedding, self.embedding)
        return [
            (
                noise.uniform(key, 2 * layer, shape, self.dtype, deviation=self.embedding**-0.5),
                noise.uniform(key, 2 * layer + 1, shape, self.dtype, deviation=(4 * self.embedding) ** -0.5),
            )
            for layer in range(self.layers)
        ]

    def parameter_specs(self) -> Tree:
        """4D over tensor and D over fsdp: over tensor, activations are gathered once and summed once a layer.

        The first matrix is kept transposed. Laid out the other way, XLA's TPU compiler pads the reduce-scatter of
        its gradient and adds exchanges (408.9 instead of 402.7 MB over ICI for v4-8 with the defaults).
        """
        return [(PARAMETER, PARAMETER)] * self.layers

    def batch(self, key: jax.Array, size: int) -> Tree:
        """[size, D]."""
        return noise.uniform(key, -1, (size, self.embedding), self.dtype)

    def batch_specs(self) -> Tree:
        """Rows over data and fsdp, features over tensor."""
        return ACTIVATIONS

    def loss(self, params: Tree, batch: Tree, constrain: Constrain, *, remat: bool = False) -> jax.Array:
        """The mean of the last layer's outputs, in float32."""

        def layer(x: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
            up, down = (gathered(matrix, IN_USE, PARAMETER, constrain) for matrix in (up, down))
            hidden = constrain(jax.nn.sigmoid(x @ up.T), ACTIVATIONS)
            return constrain(jax.nn.sigmoid(hidden @ down), ACTIVATIONS)

        apply = jax.checkpoint(layer) if remat else layer
        x = batch
        for up, down in params:
            x = apply(x, up, down)
        return jnp.mean(x, dtype=jnp.float32)

    def matmul_flops(self, batch: int) -> float:
        """(6 - 1/L) B P: three products a matrix, but the first needs no gradient of its input.

        2 B P forward, 2 B P for the parameters' gradients and 2 B P for the inputs' gradients, of which the first
        matrix's share, 1/(2L), is never needed since the data is not trained.
        """
        return (6 - 1 / self.layers) * batch * self.parameters


def check_sizes(model: str, **sizes: object) -> None:
    """Refuse a size that a model cannot have.

    Raises:
        InvalidRequestError: One of them is not a positive integer.
    """
    faults = [
        (f"{name} cannot be {value!r}.", "It must be a positive integer.")
        for name, value in sizes.items()
        if isinstance(value, bool) or not isinstance(value, int) or value < 1
    ]
    if faults:
        raise InvalidRequestError.of_faults(model, faults)


def check(workload: Workload, parallelism: Parallelism) -> None:
    """Refuse a model whose sizes the mesh axes do not divide, before anything is compiled.

    Args:
        workload: The model.
        parallelism: Resolved, without -1.

    Raises:
        ParallelismError: An axis does not divide a size.
    """
    axes = zip(("data", "fsdp", "tensor"), parallelism.ici, parallelism.dcn, strict=True)
    degrees = {axis: ici * dcn for axis, ici, dcn in axes}
    for axis, sizes in workload.splits.items():
        for size in sizes:
            if size % degrees[axis]:
                raise ParallelismError(
                    f"A size of {size} of the workload {workload.name} does not divide into {degrees[axis]} shards "
                    f"along {axis} ({parallelism.name}).",
                    fix=f"Choose sizes that are multiples of {degrees[axis]}, or less {axis} parallelism.",
                )
