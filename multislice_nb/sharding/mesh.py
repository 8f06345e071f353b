"""The mesh of devices that a parallelism means."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from multislice_nb.errors import ParallelismError
from multislice_nb.sharding.parallelism import AXES, Parallelism

if TYPE_CHECKING:
    from collections.abc import Sequence

    import jax
    import numpy as np

__all__ = ["abstract_mesh", "device_array", "make_mesh"]


def make_mesh(parallelism: Parallelism, devices: Sequence[jax.Device] | None = None) -> jax.sharding.Mesh:
    """A mesh with the axes data, fsdp and tensor, in which each slice is one block.

    With several slices it comes from `jax.experimental.mesh_utils.create_hybrid_device_mesh`, so that only the
    DCN degrees cross slices. Its axes are of the type Auto: the compiler lays out what nothing else says.

    Args:
        parallelism: Degrees; a -1 is inferred from the devices.
        devices: All devices of all slices; JAX's own when left out.

    Raises:
        ParallelismError: If the products do not match the devices and their slices.
    """
    import jax
    from jax.sharding import Mesh

    array = device_array(parallelism, jax.devices() if devices is None else devices)
    return Mesh(array, AXES, axis_types=_axis_types())


def abstract_mesh(parallelism: Parallelism) -> jax.sharding.AbstractMesh:
    """The same mesh without devices, to trace on. The parallelism is resolved."""
    from jax.sharding import AbstractMesh

    return AbstractMesh(parallelism.mesh_shape, AXES, axis_types=_axis_types())


def _axis_types() -> tuple[jax.sharding.AxisType, ...]:
    """Said, because JAX's own default differs between its versions and its kinds of meshes."""
    from jax.sharding import AxisType

    return (AxisType.Auto,) * len(AXES)


def device_array(parallelism: Parallelism, devices: Sequence[Any]) -> np.ndarray:
    """The devices in an array of shape (data, fsdp, tensor); see `make_mesh`."""
    slices = _slice_count(parallelism, devices)
    resolved = parallelism.resolve(len(devices) // slices, slices)
    if slices > 1 and len(_slice_indices(devices)) == slices:
        return _hybrid(resolved, devices)
    if slices > 1:
        return _consecutive(resolved, devices)
    return _physical(resolved, devices)


def _slice_indices(devices: Sequence[Any]) -> set[int]:
    return {getattr(device, "slice_index", 0) for device in devices}


def _slice_count(parallelism: Parallelism, devices: Sequence[Any]) -> int:
    """Slices of the devices. Devices of a CPU know of none: there it is what the parallelism asks for."""
    seen = len(_slice_indices(devices))
    wanted = math.prod(parallelism.dcn)
    virtual = seen == 1 and wanted > 1 and devices[0].platform != "tpu"
    if not virtual:
        return seen
    if len(devices) % wanted:
        raise ParallelismError(
            f"{len(devices)} devices cannot form {wanted} equal slices.",
            fix=f"Make the product of the DCN degrees a divisor of {len(devices)}.",
        )
    return wanted


def _hybrid(resolved: Parallelism, devices: Sequence[Any]) -> np.ndarray:
    from jax.experimental import mesh_utils

    try:
        return mesh_utils.create_hybrid_device_mesh(resolved.ici, resolved.dcn, devices)
    except NotImplementedError:
        # A degree that no whole physical axis can carry, such as 8 x 2 on 4x4: let it split an axis.
        return mesh_utils.create_hybrid_device_mesh(
            resolved.ici, resolved.dcn, devices, allow_split_physical_axes=True
        )


def _physical(resolved: Parallelism, devices: Sequence[Any]) -> np.ndarray:
    from jax.experimental import mesh_utils

    try:
        return mesh_utils.create_device_mesh(resolved.ici, devices)
    except NotImplementedError:
        return mesh_utils.create_device_mesh(resolved.ici, devices, allow_split_physical_axes=True)


def _consecutive(resolved: Parallelism, devices: Sequence[Any]) -> np.ndarray:
    """Equal runs of devices as slices, for virtual CPU devices, which have no slice index."""
    import numpy as np

    blocks = np.array(devices, dtype=object).reshape(*resolved.dcn, *resolved.ici)
    return blocks.transpose(0, 3, 1, 4, 2, 5).reshape(resolved.mesh_shape)
