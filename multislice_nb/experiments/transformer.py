"""A small decoder-only transformer: the same measurements on a model with attention and a vocabulary."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from multislice_nb.errors import InvalidRequestError
from multislice_nb.experiments import noise
from multislice_nb.experiments.gather import gathered
from multislice_nb.experiments.workload import IN_USE, PARAMETER, check_sizes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from multislice_nb.experiments.workload import Constrain, Tree

ROWS = ("data", "fsdp")
STREAM = PartitionSpec(ROWS, None, None)
FEATURES = PartitionSpec(ROWS, None, "tensor")
HEADS = PartitionSpec(ROWS, None, "tensor", None)
VECTOR = PartitionSpec("fsdp")
REPLICATED = PartitionSpec()
_ROPE_BASE = 10_000.0  # Su et al., arXiv:2104.09864, section 3.2.2


@dataclasses.dataclass(frozen=True, slots=True)
class Transformer:
    """Layers of causal attention and a feed-forward pair, with normalisation before each (decoder only).

    All matrices are kept as [features, D], features over tensor and D over fsdp, so that over tensor the stream is
    summed once after attention and once after the feed-forward pair.

    Attributes:
        embedding: D, features of a token.
        layers: L.
        heads: Of D / heads features each.
        sequence: S, tokens of a row of the batch.
        vocabulary: V.
        dtype: Of parameters and activations; softmax and loss are in float32.
    """

    embedding: int = 1024
    layers: int = 4
    heads: int = 8
    sequence: int = 512
    vocabulary: int = 32_768
    dtype: str = "bfloat16"

    def __post_init__(self) -> None:
        sizes = {name: size for name, size in dataclasses.asdict(self).items() if name != "dtype"}
        check_sizes("The transformer", **sizes)
        if self.embedding % (2 * self.heads):
            raise InvalidRequestError(
                f"A transformer cannot be made: {self.heads} heads do not share {self.embedding}.",
                fix="Take an embedding that is an even number for each head.",
            )

    @property
    def name(self) -> str:
        """`transformer`."""
        return "transformer"

    @property
    def parameters(self) -> int:
        """2 V D + L (12 D^2 + 2 D) + D."""
        d = self.embedding
        return 2 * self.vocabulary * d + self.layers * (12 * d * d + 2 * d) + d

    @property
    def tokens_per_example(self) -> int:
        """S."""
        return self.sequence

    @property
    def settings(self) -> Mapping[str, int | str]:
        """All sizes and the dtype."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @property
    def splits(self) -> Mapping[str, tuple[int, ...]]:
        """D over fsdp; heads, features and vocabulary over tensor."""
        return {"fsdp": (self.embedding,), "tensor": (self.heads, self.embedding, self.vocabulary)}

    def init(self, key: jax.Array) -> Tree:
        """Tables of tokens and logits, each layer's six matrices and two gains, and a last gain."""
        shapes = {**dict.fromkeys(("query", "key", "value", "out"), 1), "up": 4, "down": 4}

        def matrix(salt: int, rows: int, fan_in: int) -> jax.Array:
            return noise.uniform(key, salt, (rows, self.embedding), self.dtype, deviation=fan_in**-0.5)

        def layer(at: int) -> Tree:
            gains = {name: jnp.ones(self.embedding, self.dtype) for name in ("before", "between")}
            return gains | {
                name: matrix(
                    2 + 6 * at + salt,
                    wide * self.embedding,
                    wide * self.embedding if name == "down" else self.embedding,
                )
                for salt, (name, wide) in enumerate(shapes.items())
            }

        return {
            "tokens": matrix(0, self.vocabulary, 1),
            "logits": matrix(1, self.vocabulary, self.embedding),
            "last": jnp.ones(self.embedding, self.dtype),
            "layers": [layer(at) for at in range(self.layers)],
        }

    def parameter_specs(self) -> Tree:
        """Matrices over (tensor, fsdp), gains over fsdp."""
        matrices = dict.fromkeys(("query", "key", "value", "out", "up", "down"), PARAMETER)
        layer = {"before": VECTOR, "between": VECTOR, **matrices}
        return {"tokens": PARAMETER, "logits": PARAMETER, "last": VECTOR, "layers": [layer] * self.layers}

    def batch(self, key: jax.Array, size: int) -> Tree:
        """[size, S + 1] tokens: each is the target of those before it."""
        shape = (size, self.sequence + 1)
        return (noise.bits(key, -1, shape) % jnp.uint32(self.vocabulary)).astype(jnp.int32)

    def batch_specs(self) -> Tree:
        """Rows over data and fsdp."""
        return PartitionSpec(ROWS, None)

    def loss(self, params: Tree, batch: Tree, constrain: Constrain, *, remat: bool = False) -> jax.Array:
        """Mean cross entropy of the next token, in float32."""

        def block(x: jax.Array, layer: Tree) -> jax.Array:
            whole = {name: self._whole(value, constrain) for name, value in layer.items()}
            x = constrain(x + self._attention(_norm(x, whole["before"]), whole, constrain), STREAM)
            hidden = constrain(jax.nn.gelu(_norm(x, whole["between"]) @ whole["up"].T), FEATURES)
            return constrain(x + hidden @ whole["down"], STREAM)

        apply = jax.checkpoint(block) if remat else block
        # The gradient of a lookup is a scatter, which XLA cannot split over tensor and fsdp without replicating it.
        table = gathered(params["tokens"], REPLICATED, REPLICATED, constrain)
        x = constrain(table[batch[:, :-1]], STREAM)
        for layer in params["layers"]:
            x = apply(x, layer)
        last = self._whole(params["last"], constrain)
        logits = constrain(_norm(x, last) @ self._whole(params["logits"], constrain).T, FEATURES)
        return _cross_entropy(logits.astype(jnp.float32), batch[:, 1:])

    @staticmethod
    def _whole(param: jax.Array, constrain: Constrain) -> jax.Array:
        if param.ndim == 1:
            return gathered(param, REPLICATED, VECTOR, constrain)
        return gathered(param, IN_USE, PARAMETER, constrain)

    def _attention(self, x: jax.Array, layer: Tree, constrain: Constrain) -> jax.Array:
        rows, length, width = x.shape

        def heads(name: str) -> jax.Array:
            split = (x @ layer[name].T).reshape(rows, length, self.heads, width // self.heads)
            return constrain(split, HEADS)

        query, key, value = _rotated(heads("query")), _rotated(heads("key")), heads("value")
        mixed = constrain(jax.nn.dot_product_attention(query, key, value, is_causal=True), HEADS)
        summed: jax.Array = mixed.reshape(rows, length, width) @ layer["out"]
        return summed

    def matmul_flops(self, batch: int) -> float:
        """6 T (12 D^2 L + V D) for the matrices and 12 T S D L for attention, over T = batch S tokens.

        Every input of a product is trained, the first layer's too. Attention is counted as it is computed, with
        the half that the causal mask drops.
        """
        tokens = batch * self.sequence
        matrices = 12 * self.embedding**2 * self.layers + self.vocabulary * self.embedding
        return 6.0 * tokens * matrices + 12.0 * tokens * self.sequence * self.embedding * self.layers


def _norm(x: jax.Array, gain: jax.Array) -> jax.Array:
    """Root mean square normalisation (Zhang and Sennrich, arXiv:1910.07467), in float32."""
    wide = x.astype(jnp.float32)
    scaled = wide * jax.lax.rsqrt(jnp.mean(wide**2, axis=-1, keepdims=True) + 1e-6)
    normed: jax.Array = scaled.astype(x.dtype) * gain
    return normed


def _rotated(x: jax.Array) -> jax.Array:
    """Rotary position embedding of [rows, S, heads, features]."""
    _, length, _, features = x.shape
    rates = _ROPE_BASE ** (-jnp.arange(features // 2, dtype=jnp.float32) / (features // 2))
    angles = jnp.arange(length, dtype=jnp.float32)[:, None] * rates
    sine, cosine = (wave(angles)[:, None, :].astype(x.dtype) for wave in (jnp.sin, jnp.cos))
    low, high = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([low * cosine - high * sine, high * cosine + low * sine], axis=-1)


def _cross_entropy(logits: jax.Array, targets: jax.Array) -> jax.Array:
    """Mean over all tokens. The target's logit is picked by a mask, which stays local where V is sharded."""
    vocabulary = jax.lax.broadcasted_iota(targets.dtype, logits.shape, logits.ndim - 1)
    chosen = jnp.sum(jnp.where(vocabulary == targets[..., None], logits, 0.0), axis=-1)
    loss: jax.Array = jnp.mean(jax.nn.logsumexp(logits, axis=-1) - chosen)
    return loss
