from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multislice_nb.errors import ParallelismError
from multislice_nb.sharding import Parallelism
from multislice_nb.sharding.mesh import device_array

ways = st.integers(min_value=1, max_value=4)


@dataclass(frozen=True)
class Device:
    """What JAX's mesh functions look at in a device."""

    id: int
    process_index: int
    slice_index: int
    platform: str = "cpu"
    device_kind: str = "cpu"


def devices(slices: int, per_slice: int, *, known: bool = True) -> list[Device]:
    """Devices in slices; `known` is whether they tell their slice."""
    return [Device(at, at // per_slice, at // per_slice if known else 0) for at in range(slices * per_slice)]


@settings(max_examples=60)  # the first example imports jax
@given(st.tuples(ways, ways, ways), st.tuples(ways, ways, ways), st.booleans())
def test_blocks_are_slice_pure(ici: tuple[int, int, int], dcn: tuple[int, int, int], known: bool) -> None:
    """For any shape, every device appears once and each ICI block holds the devices of one slice."""
    slices, per_slice = math.prod(dcn), math.prod(ici)
    asked = Parallelism(
        ici_data=ici[0],
        ici_fsdp=ici[1],
        ici_tensor=ici[2],
        dcn_data=dcn[0],
        dcn_fsdp=dcn[1],
        dcn_tensor=dcn[2],
    )
    array = device_array(asked, devices(slices, per_slice, known=known))
    assert array.shape == asked.mesh_shape
    assert len({device.id for device in array.flat}) == slices * per_slice
    slice_of = np.vectorize(lambda device: device.id // per_slice)(array)
    for at in np.ndindex(*dcn):
        block = slice_of[tuple(slice(i * size, (i + 1) * size) for i, size in zip(at, ici, strict=True))]
        assert len(set(block.flat)) == 1


def test_a_mesh_that_does_not_match_is_refused() -> None:
    """Degrees that do not match the devices or their slices are refused with the product."""
    with pytest.raises(ParallelismError, match="= 4, but a slice has 8 chips"):
        device_array(Parallelism(ici_fsdp=4, dcn_data=2), devices(2, 8))
    with pytest.raises(ParallelismError, match="= 1, but there are 2 slices"):
        device_array(Parallelism(ici_fsdp=8), devices(2, 8))
    with pytest.raises(ParallelismError, match="cannot form 3 equal slices"):
        device_array(Parallelism(ici_fsdp=-1, dcn_data=3), devices(1, 8))


PROGRAM = """
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
from multislice_nb.sharding import Parallelism, make_mesh
mesh = make_mesh(Parallelism(ici_fsdp=-1, ici_tensor=2, dcn_data=2))
assert mesh.axis_names == ("data", "fsdp", "tensor") and dict(mesh.shape) == {"data": 2, "fsdp": 2, "tensor": 2}
x = jax.device_put(jnp.arange(64.0).reshape(8, 8), NamedSharding(mesh, P(("data", "fsdp"), "tensor")))
assert len(x.sharding.device_set) == 8
print(float(jax.jit(jnp.sum)(x)))
"""


def test_a_mesh_of_real_devices_computes() -> None:
    """On eight CPU devices of a process of its own, a sum over arrays sharded by the mesh is right."""
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "8"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == 2016.0
