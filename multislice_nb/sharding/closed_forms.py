"""Closed forms of what a step moves and keeps on one device (a chip, but on TPU7x): over ICI, over DCN, in HBM."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from multislice_nb.sharding.intensity import ring_factor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from multislice_nb.sharding.model import Model
    from multislice_nb.sharding.parallelism import Parallelism

__all__ = ["Traffic", "hbm_bytes", "memory_bytes", "traffic"]


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that one device moves in a step, by kind of collective.

    Attributes:
        ici: Bytes a device receives over ICI.
        dcn_payload: Bytes a device hands to DCN; an all-reduce of n slices carries them 2(n-1)/n times, a scatter
            half as often, a gather n-1 times.
        dcn_wire: Bytes a device sends over DCN.
    """

    ici: Mapping[str, float]
    dcn_payload: Mapping[str, float]
    dcn_wire: Mapping[str, float]

    @property
    def ici_bytes(self) -> float:
        """All bytes over ICI, per device and step."""
        return sum(self.ici.values())

    @property
    def dcn_bytes(self) -> float:
        """All bytes sent over DCN, per device and step."""
        return sum(self.dcn_wire.values())


def traffic(model: Model, parallelism: Parallelism, tokens_per_device: float) -> Traffic:
    """What a step of a model moves, with parameters gathered once and kept for the pass backward.

    - FSDP gathers P/t parameters and scatters their gradients: (n-1)/n of them each.
    - Data parallelism all-reduces the gradients of its shard: 2(n-1)/n of them.
    - Tensor parallelism gathers and scatters activations [B, D] in each layer and each pass (scaling book,
      training.md), but the first layer needs no gradient of its input.
    - Over DCN the same of what ICI leaves on each device.

    Args:
        model: What is trained.
        parallelism: Resolved.
        tokens_per_device: Batch of all slices over all JAX devices.
    """
    data, fsdp, tensor = parallelism.ici
    dcn_data, dcn_fsdp, dcn_tensor = parallelism.dcn
    layer_share = model.parameters / (tensor * dcn_tensor)
    shard = layer_share / fsdp
    rows = tokens_per_device * tensor * dcn_tensor * model.embedding * model.parameter_bytes
    passes = 4 * model.layers - 1
    ici = {
        "all-gather": layer_share * model.parameter_bytes * _part(fsdp),
        "reduce-scatter": layer_share * model.gradient_bytes * _part(fsdp),
        "all-reduce": shard * model.gradient_bytes * ring_factor(data),
        "activations": passes * rows * _part(tensor) / dcn_tensor,
    }
    payload = {
        "all-reduce": shard / data * model.gradient_bytes / dcn_fsdp if dcn_data > 1 else 0.0,
        "all-gather": shard / dcn_fsdp * model.parameter_bytes if dcn_fsdp > 1 else 0.0,
        "reduce-scatter": shard * model.gradient_bytes if dcn_fsdp > 1 else 0.0,
        "activations": passes * rows / tensor if dcn_tensor > 1 else 0.0,
    }
    times = {
        "all-reduce": ring_factor(dcn_data),
        "all-gather": dcn_fsdp - 1,
        "reduce-scatter": _part(dcn_fsdp),
        "activations": _part(dcn_tensor),
    }
    return Traffic(
        ici=_nonzero(ici),
        dcn_payload=_nonzero(payload),
        dcn_wire=_nonzero({kind: value * times[kind] for kind, value in payload.items()}),
    )


def hbm_bytes(model: Model, parallelism: Parallelism, tokens_per_device: float) -> float:
    """Bytes that one device reads and writes in HBM in a step.

    Activations per token and layer: forward reads D, writes F, reads F, writes D; backward reads and writes 4 D
    and 5 F more for the gradients of two inputs and two matrices: 6 D + 7 F. Parameters are read in both passes,
    gradients written and read, parameters written.
    """
    _, _, tensor = parallelism.mesh_shape
    features = 6 * model.embedding + 7 * model.feedforward
    activations = tokens_per_device * model.layers * features * model.parameter_bytes
    gathered = model.parameters / tensor
    return activations + gathered * (3 * model.parameter_bytes + 2 * model.gradient_bytes)


def memory_bytes(
    model: Model, parallelism: Parallelism, tokens_per_device: float, *, remat: bool = False
) -> float:
    """Bytes of HBM that a step needs on one device.

    Activations kept for the pass backward, D + F per token and layer (maxtext, shardings.py), the input, the
    device's shard of parameters and optimiser state, and one gathered copy of the parameters.

    Args:
        model: What is trained.
        parallelism: Resolved.
        tokens_per_device: Batch of all slices over all JAX devices.
        remat: Keep only what enters each layer, and compute one layer at a time again.
    """
    _, fsdp, tensor = parallelism.mesh_shape
    inner = model.embedding + model.feedforward
    per_token = model.layers * model.embedding + inner if remat else model.layers * inner
    activations = tokens_per_device * (per_token + model.embedding) * model.parameter_bytes
    kept = model.parameters / (fsdp * tensor) * (2 * model.parameter_bytes + model.optimizer_bytes)
    gathered = model.parameters / tensor * model.parameter_bytes
    return activations + kept + (gathered / model.layers if remat else gathered)


def _part(members: int) -> float:
    """What a member of a gather or scatter receives: all but its own part."""
    return ring_factor(members) / 2


def _nonzero(numbers: Mapping[str, float]) -> Mapping[str, float]:
    return MappingProxyType({kind: value for kind, value in numbers.items() if value})
