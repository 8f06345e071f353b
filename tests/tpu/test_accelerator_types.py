from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multislice_nb import tpu
from multislice_nb.errors import AcceleratorTypeError, InvalidRequestError
from multislice_nb.tpu import AcceleratorType, Generation, Topology, accelerator_types, generation

ALL = [name for kind in tpu.GENERATIONS for name in accelerator_types(kind)]

# Cloud TPU documentation and xpk's system_characteristics.py: name, topology, chips, workers, JAX devices.
KNOWN = [
    ("v4-8", "2x2x1", 4, 1, 4),
    ("v4-16", "2x2x2", 8, 2, 8),
    ("v4-32", "2x2x4", 16, 4, 16),
    ("v4-64", "2x4x4", 32, 8, 32),
    ("v4-128", "4x4x4", 64, 16, 64),
    ("v4-256", "4x4x8", 128, 32, 128),
    ("v4-384", "4x4x12", 192, 48, 192),
    ("v4-512", "4x8x8", 256, 64, 256),
    ("v4-1024", "8x8x8", 512, 128, 512),
    ("v4-1536", "8x8x12", 768, 192, 768),
    ("v4-2048", "8x8x16", 1024, 256, 1024),
    ("v4-4096", "8x16x16", 2048, 512, 2048),
    ("v5p-8", "2x2x1", 4, 1, 4),
    ("v5p-640", "4x4x20", 320, 80, 320),
    ("v5p-1152", "4x12x12", 576, 144, 576),
    ("v5p-1920", "4x12x20", 960, 240, 960),
    ("v5p-6912", "12x12x24", 3456, 864, 3456),
    ("v5p-11520", "12x20x24", 5760, 1440, 5760),
    ("v5p-12288", "16x16x24", 6144, 1536, 6144),
    ("v5litepod-1", "1x1", 1, 1, 1),
    ("v5litepod-4", "2x2", 4, 1, 4),
    ("v5litepod-8", "2x4", 8, 1, 8),
    ("v5litepod-16", "4x4", 16, 4, 16),
    ("v5litepod-256", "16x16", 256, 64, 256),
    ("v6e-8", "2x4", 8, 1, 8),
    ("v6e-16", "4x4", 16, 4, 16),
    ("v6e-128", "8x16", 128, 32, 128),
    ("tpu7x-2", "1x1x1", 1, 1, 2),
    ("tpu7x-8", "2x2x1", 4, 1, 8),
    ("tpu7x-128", "4x4x4", 64, 16, 128),
]


@pytest.mark.parametrize(("name", "topology", "chips", "workers", "devices"), KNOWN)
def test_known_slices(name: str, topology: str, chips: int, workers: int, devices: int) -> None:
    """A published accelerator type has its published topology, chips, workers and JAX devices."""
    found = AcceleratorType.parse(name)
    assert (found.topology, found.chips, found.workers, found.device_count) == (
        topology,
        chips,
        workers,
        devices,
    )


@given(st.sampled_from(ALL))
def test_products_hold_for_every_name(name: str) -> None:
    """Chips, workers and devices of every name multiply up, and the name is read back as itself."""
    found = AcceleratorType.parse(name)
    assert found.name == name
    assert found.chips == math.prod(found.shape) == found.workers * found.chips_per_worker
    assert found.device_count == found.workers * found.devices_per_worker
    assert found.chips <= found.generation.largest_slice_chips
    assert found.has_default_topology
    assert AcceleratorType.from_topology(found.generation, found.topology) == found


@given(st.sampled_from(tpu.GENERATIONS), st.integers(min_value=0, max_value=30_000))
def test_a_size_is_accepted_or_the_nearest_are_named(kind: Generation, count: int) -> None:
    """Any size is either a slice, or is refused with existing sizes around it."""
    names = accelerator_types(kind)
    name = f"{kind.prefix}-{count}"
    if name in names:
        assert AcceleratorType.parse(name).name == name
        return
    with pytest.raises(AcceleratorTypeError) as caught:
        AcceleratorType.parse(name)
    nearest = caught.value.fix.removeprefix("Nearest: ").rstrip(".").split(", ")
    sizes = [int(one.rsplit("-", 1)[1]) for one in nearest]
    assert set(nearest) <= set(names)
    existing = [int(one.rsplit("-", 1)[1]) for one in names]
    below = [size for size in existing if size < count][-1:]
    above = [size for size in existing if size > count][:1]
    assert sizes == below + above


@given(st.text(max_size=20))
def test_any_text_is_a_slice_or_our_error(text: str) -> None:
    """Whatever is typed gives a slice or an AcceleratorTypeError with advice, never another exception."""
    try:
        found = AcceleratorType.parse(text)
    except AcceleratorTypeError as error:
        advice = error.fix
        assert advice
    else:
        assert found.name in accelerator_types(found.generation)


@given(
    st.sampled_from(tpu.GENERATIONS),
    st.lists(st.integers(min_value=1, max_value=40), min_size=1, max_size=4),
)
def test_any_shape_is_a_slice_or_our_error(kind: Generation, edges: list[int]) -> None:
    """A shape is a slice with that many chips, or is refused."""
    text = "x".join(map(str, edges))
    try:
        found = AcceleratorType.from_topology(kind, text)
    except AcceleratorTypeError as error:
        advice = error.fix
        assert advice
    else:
        assert found.chips == math.prod(edges)
        assert AcceleratorType.parse(found.name).chips == found.chips


@pytest.mark.parametrize(
    ("name", "what", "fix"),
    [
        (
            "v4-18",
            "v4-18 is not a v4 slice: sizes are 8, 16, 32, 64, 128, ... TensorCores.",
            "Nearest: v4-16, v4-32.",
        ),
        (
            "v3-8",
            "Multislice needs TPU v4 or later; v3 has single slices only.",
            "Nearest in TensorCores: v4-8, v5p-8.",
        ),
        ("v3-2048", "Multislice needs TPU v4", "v4-2048, v5p-2048."),
        (
            "v2-8",
            "Multislice needs TPU v4 or later; v2 has single slices only.",
            "Nearest in TensorCores: v4-8, v5p-8.",
        ),
        (
            "v5litepod-24",
            "v5litepod-24 is not a v5e slice: sizes are 1, 4, 8, 16, 32, 64, 128, 256 chips.",
            "Nearest: v5litepod-16, v5litepod-32.",
        ),
        ("v4-9000", "v4-9000 is not a v4 slice", "Nearest: v4-8192."),
        ("v4_16", "'v4_16' is not an accelerator type.", "Did you mean v4-16?"),
        ("v5lite_pod-16", "'v5lite_pod-16' is not an accelerator type.", "Did you mean v5litepod-16?"),
        ("TPU v6e 16", "'TPU v6e 16' is not an accelerator type.", "Did you mean v6e-16?"),
        ("16", "'16' is not an accelerator type.", "A name is a TPU type and a size"),
    ],
)
def test_refusals(name: str, what: str, fix: str) -> None:
    """What does not exist is refused with the reason and the way out."""
    with pytest.raises(AcceleratorTypeError) as caught:
        AcceleratorType.parse(name)
    assert what in caught.value.what
    assert fix in caught.value.fix


def test_everyday_names_give_the_api_name() -> None:
    """The names people use become the name that the Cloud TPU API takes."""
    assert AcceleratorType.parse("v5e-16").name == "v5litepod-16"
    assert AcceleratorType.parse(" V4-16 ").name == "v4-16"
    assert generation("trillium") is generation("v6e")
    assert generation("ironwood").in_cloud_tpu_api is False


def test_another_shape_keeps_its_name_and_says_so() -> None:
    """A slice in another shape than its name's default one says so."""
    long = AcceleratorType.from_topology("v4", "4x4x16")
    assert (long.name, long.has_default_topology) == ("v4-512", False)
    assert AcceleratorType.parse("v4-512").topology == "4x8x8"


@pytest.mark.parametrize("shape", ["2x2x3", "4x4", "8x4x4", "16x32x32", "4x4x0", "axb", ""])
def test_shapes_that_do_not_exist(shape: str) -> None:
    """A shape that no v4 slice has is refused."""
    with pytest.raises(AcceleratorTypeError):
        AcceleratorType.from_topology("v4", shape)


def test_topology_reads_back() -> None:
    """A topology's text is read back as itself."""
    assert str(Topology.parse("2X2x4")) == "2x2x4"


def test_every_number_has_a_source() -> None:
    """Each hardware number of each generation names its source."""
    numbers = {
        "bf16_flops_per_chip",
        "hbm_bytes_per_chip",
        "hbm_usable_bytes_per_chip",
        "hbm_bytes_per_second",
        "ici_links_per_chip",
        "ici_bytes_per_second_per_link",
        "ici_bytes_per_second",
        "dcn_bits_per_second_per_host",
        "chips_per_host",
        "largest_slice_chips",
    }
    for kind in tpu.GENERATIONS:
        assert set(kind.sources) == numbers
        assert all(kind.sources.values())


def test_a_number_can_be_overridden() -> None:
    """An overridden number is used, says that the user gave it, and leaves the table alone."""
    own = generation("v4").override(dcn_bits_per_second_per_host=100e9)
    assert generation(own).dcn_bits_per_second_per_host == 100e9
    assert own.sources["dcn_bits_per_second_per_host"] == "given by you"
    assert generation("v4").dcn_bits_per_second_per_host == 50e9
    with pytest.raises(InvalidRequestError, match="is not a number"):
        generation("v4").override(name=1.0)
    with pytest.raises(InvalidRequestError, match="above zero"):
        generation("v4").override(hbm_bytes_per_second=-1)


def test_only_tpu7x_is_outside_the_cloud_tpu_api() -> None:
    """TPU7x is known as hardware only; the others have a runtime version and zones."""
    outside = [kind.name for kind in tpu.GENERATIONS if not kind.in_cloud_tpu_api]
    assert outside == ["tpu7x"]
    assert all(
        kind.runtime_version and kind.zones and kind.api_type
        for kind in tpu.GENERATIONS
        if kind.in_cloud_tpu_api
    )


def test_shapes_of_as_many_chips() -> None:
    """All shapes of a number of chips exist and have that many, the default first; a 2D slice has one."""
    for kind in tpu.GENERATIONS:
        for name in tpu.accelerator_types(kind)[:60]:
            slice_type = tpu.AcceleratorType.parse(name)
            shapes = tpu.topologies(kind, slice_type.chips)
            assert str(shapes[0]) == slice_type.topology
            assert len(set(shapes)) == len(shapes)
            assert all(shape.chips == slice_type.chips and shape.exists_on(kind) for shape in shapes)
            assert len(shapes) == 1 or kind.ici_dimensions == 3
    assert list(map(str, tpu.topologies(tpu.generation("v4"), 512))) == ["8x8x8", "4x8x16", "4x4x32"]
