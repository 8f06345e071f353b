"""What the cost model and the advisor need to know of a model."""

from __future__ import annotations

from dataclasses import dataclass, replace

from multislice_nb.errors import InvalidRequestError

__all__ = ["Model"]

# What XLA's TPU compiler (libtpu 0.0.42.1) makes of attention that is not one kernel, in bytes for each score. Scores
# are float32 and probabilities bfloat16: forward it writes the scores (4), reads them and writes probabilities (4 + 2),
# reads those (2); backward it reads probabilities (2), reads scores and writes their gradients (4 + 2), and reads both
# for the gradients of queries (4 + 2) and of keys (4 + 2).
_SCORE_BYTES = 32
# Of the same programs: bfloat16 arrays of D features per token that are read or written by the passes of rotation (12)
# and of the gradients of normalisation (8) in one layer.
_FEATURE_PASSES = 20


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model as a stack of layers of two matrix products, [D, F] and [F, D], which covers Transformers roughly.

    Attributes:
        parameters: P, of the whole model.
        layers: L.
        embedding: D, features of a token between layers.
        feedforward: F, features of a token inside a layer; 4 D when left out.
        flops_per_parameter_and_token: FLOPs of a step; about 6 for a Transformer (Multislice overview).
        parameter_bytes: Width of a parameter and of an activation.
        gradient_bytes: Width of a gradient on ICI and DCN.
        optimizer_bytes: What the optimiser keeps for each parameter.
        streamed_bytes_per_token: HBM traffic of a step in passes of their own, behind which no large matrix product
            hides: scores of attention, logits, normalisation.
        streamed_flops_per_token: FLOPs of the small matrix products inside those passes, which are part of the
            FLOPs above.
        forward_flops_per_parameter_and_token: FLOPs of the layers' pass forward, of the same.
    """

    parameters: float
    layers: int
    embedding: int
    feedforward: int = 0
    flops_per_parameter_and_token: float = 6.0
    parameter_bytes: int = 2
    gradient_bytes: int = 2
    optimizer_bytes: int = 0
    streamed_bytes_per_token: float = 0.0
    streamed_flops_per_token: float = 0.0
    forward_flops_per_parameter_and_token: float = 2.0

    def __post_init__(self) -> None:
        if not self.feedforward:
            object.__setattr__(self, "feedforward", 4 * self.embedding)
        for name in ("parameters", "layers", "embedding", "feedforward"):
            if not getattr(self, name) > 0:
                raise InvalidRequestError(
                    f"{name} of a model cannot be {getattr(self, name)}.", fix="Give a number above zero."
                )

    @classmethod
    def mlp(cls, embedding: int = 2048, layers: int = 4) -> Model:
        """The model of the overview's sharding benchmark: 8 D^2 L parameters.

        Of 6 FLOPs per parameter and token one in 6 L is not computed: the input gradient of the first matrix.
        """
        return cls(
            parameters=8 * embedding**2 * layers,
            layers=layers,
            embedding=embedding,
            flops_per_parameter_and_token=6 - 1 / layers,
        )

    @classmethod
    def decoder(cls, *, embedding: int, layers: int, heads: int, sequence: int, vocabulary: int) -> Model:
        """The decoder that sweeps measure: 12 L D^2 parameters in its layers and 2 V D in its two tables, gains left out.

        FLOPs of a step per token are those of its matrix products: 6 (12 L D^2 + V D), the table of tokens being
        looked up and not multiplied, and 12 L S D of attention, the half that the causal mask drops included.
        Bytes over ICI are what XLA's TPU compiler moves.

        Attention is bound by HBM, since its scores are an array: `_SCORE_BYTES` for each of H S per token and layer.
        The logits are read once more for the loss than by matrix products, and normalisation and rotation pass over
        D features `_FEATURE_PASSES` times a layer. Vector units, which take longer than HBM for some of this, are
        not counted: for v4-8, D 2048, L 2, S 1024 and V 32768 the compiler's own schedule takes 1.3 times as long.
        A calibration with measured steps makes up for it.
        """
        matrices = 12 * layers * embedding**2
        parameters = matrices + 2 * vocabulary * embedding
        flops = 6 * (matrices + vocabulary * embedding) + 12 * layers * sequence * embedding
        return cls(
            parameters=parameters,
            layers=layers,
            embedding=embedding,
            flops_per_parameter_and_token=flops / parameters,
            streamed_bytes_per_token=(
                layers * (_SCORE_BYTES * heads * sequence + 2 * _FEATURE_PASSES * embedding) + 2 * vocabulary
            ),
            streamed_flops_per_token=12 * layers * sequence * embedding,
            forward_flops_per_parameter_and_token=(2 * matrices + 4 * layers * sequence * embedding)
            / parameters,
        )

    @classmethod
    def transformer(
        cls, parameters: float, *, layers: int | None = None, embedding: int | None = None
    ) -> Model:
        """A decoder of a number of parameters, with gradients in float32 and Adam's two moments.

        Shapes that are left out follow P = 12 L D^2 with D = 128 L (Kaplan et al. 2020, "Scaling laws", section
        2.1; aspect ratios near 100 train best).
        """
        if not parameters > 0:
            raise InvalidRequestError(
                f"A model cannot have {parameters:g} parameters.", fix="Give a number above zero, as 8e9."
            )
        depth = layers or max(1, round((parameters / (12 * 128**2)) ** (1 / 3)))
        width = embedding or max(128, round((parameters / (12 * depth)) ** 0.5 / 128) * 128)
        return cls(parameters=parameters, layers=depth, embedding=width, gradient_bytes=4, optimizer_bytes=8)

    def recomputing(self) -> Model:
        """The same with its layers computed again in the pass backward, and a third more of what streams through HBM."""
        extra = self.forward_flops_per_parameter_and_token
        return replace(
            self,
            flops_per_parameter_and_token=self.flops_per_parameter_and_token + extra,
            streamed_bytes_per_token=self.streamed_bytes_per_token * 4 / 3,
            streamed_flops_per_token=self.streamed_flops_per_token * 4 / 3,
        )

    def step_flops(self, tokens: float) -> float:
        """FLOPs of one training step over so many tokens."""
        return self.flops_per_parameter_and_token * self.parameters * tokens
