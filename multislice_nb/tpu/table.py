"""The TPU generations that Multislice runs on, and TPU7x, which is known as hardware only."""

from __future__ import annotations

import difflib

from multislice_nb.errors import AcceleratorTypeError
from multislice_nb.tpu.generation import Generation

__all__ = ["GENERATIONS", "UNSUPPORTED", "generation", "generation_of_device"]

_GIB = float(2**30)
_DOCS = "docs.cloud.google.com/tpu/docs/"
_BOOK = "scaling-book (jax-ml/scaling-book), tpus.md: {} GB/s a link, one way"
_OVERVIEW = "Cloud TPU Multislice overview"
_COMPILER = "XLA's TPU compiler (libtpu 0.0.42.1), the limit its out-of-memory errors name"
_AOT_NAMES = "maxtext, accelerator_to_spec_map.py"

UNSUPPORTED = ("v2", "v3")

_V4 = Generation(
    name="v4",
    prefix="v4",
    api_type="V4",
    aliases=("pufferfish",),
    bf16_flops_per_chip=275e12,
    hbm_bytes_per_chip=32 * _GIB,
    hbm_usable_bytes_per_chip=30.75 * _GIB,
    hbm_bytes_per_second=1200e9,
    ici_links_per_chip=6,
    ici_bytes_per_second_per_link=45e9,
    ici_bytes_per_second=270e9,
    ici_dimensions=3,
    dcn_bits_per_second_per_host=50e9,
    chips_per_host=4,
    cores_per_chip=2,
    devices_per_chip=1,
    names_count_cores=True,
    largest_slice_chips=4096,
    device_kinds=("TPU v4",),
    multislice=True,
    in_cloud_tpu_api=True,
    runtime_version="tpu-ubuntu2204-base",
    zones=("us-central2-b",),
    compiler_topology="v4",
    compiler_chip_config="megacore",
    sources={
        "bf16_flops_per_chip": f"{_OVERVIEW}; {_DOCS}v4",
        "hbm_bytes_per_chip": f"{_DOCS}v4 (32 GiB)",
        "hbm_usable_bytes_per_chip": f"{_COMPILER} (30.75 GiB)",
        "hbm_bytes_per_second": f"{_DOCS}v4 (1200 GB/s)",
        "ici_links_per_chip": f"{_DOCS}v4 (3D mesh: 6 neighbours)",
        "ici_bytes_per_second_per_link": f"{_BOOK.format(45)}; {_DOCS}v4 implies 50",
        "ici_bytes_per_second": "6 links of 45 GB/s; with 50 GB/s a link it would be 300",
        "dcn_bits_per_second_per_host": f"{_OVERVIEW} (50 Gbps a host of 4 chips)",
        "chips_per_host": _OVERVIEW,
        "largest_slice_chips": f"{_DOCS}v4 (4096 chips)",
    },
)

_V5E = Generation(
    name="v5e",
    prefix="v5litepod",
    api_type="V5LITE_POD",
    aliases=("v5litepod", "v5lite", "v5-lite"),
    bf16_flops_per_chip=197e12,
    hbm_bytes_per_chip=16 * _GIB,
    hbm_usable_bytes_per_chip=15.75 * _GIB,
    hbm_bytes_per_second=819e9,
    ici_links_per_chip=4,
    ici_bytes_per_second_per_link=45e9,
    ici_bytes_per_second=200e9,
    ici_dimensions=2,
    dcn_bits_per_second_per_host=100e9,
    chips_per_host=4,
    cores_per_chip=1,
    devices_per_chip=1,
    names_count_cores=False,
    largest_slice_chips=256,
    device_kinds=("TPU v5 lite", "TPU v5e"),
    multislice=True,
    in_cloud_tpu_api=True,
    runtime_version="v2-alpha-tpuv5-lite",
    zones=("us-central1-a", "us-south1-a", "us-west1-c", "us-west4-a", "europe-west4-b"),
    compiler_topology="v5e",
    compiler_chip_config="default",
    sources={
        "bf16_flops_per_chip": f"{_DOCS}v5e",
        "hbm_bytes_per_chip": f"{_DOCS}v5e says 16 GB; the compiler offers 15.75 GiB, so GiB are meant",
        "hbm_usable_bytes_per_chip": f"{_COMPILER} (15.75 GiB)",
        "hbm_bytes_per_second": f"{_DOCS}v5e (819 GB/s)",
        "ici_links_per_chip": f"{_DOCS}v5e (2D torus: 4 neighbours)",
        "ici_bytes_per_second_per_link": f"{_BOOK.format(45)}; {_DOCS}v5e implies 50",
        "ici_bytes_per_second": f"{_DOCS}v5e (200 GB/s in all); 4 links of 45 would be 180",
        "dcn_bits_per_second_per_host": f"{_DOCS}v5e (25 Gbps a chip), for 4 chips",
        "chips_per_host": f"{_DOCS}v5e (4 chips a VM from 16 chips on)",
        "largest_slice_chips": f"{_DOCS}v5e (256 chips)",
    },
)

_V5P = Generation(
    name="v5p",
    prefix="v5p",
    api_type="V5P",
    aliases=(),
    bf16_flops_per_chip=459e12,
    hbm_bytes_per_chip=95 * _GIB,
    hbm_usable_bytes_per_chip=95.74 * _GIB,
    hbm_bytes_per_second=2765e9,
    ici_links_per_chip=6,
    ici_bytes_per_second_per_link=90e9,
    ici_bytes_per_second=600e9,
    ici_dimensions=3,
    dcn_bits_per_second_per_host=200e9,
    chips_per_host=4,
    cores_per_chip=2,
    devices_per_chip=1,
    names_count_cores=True,
    largest_slice_chips=6144,
    device_kinds=("TPU v5", "TPU v5p"),
    multislice=True,
    in_cloud_tpu_api=True,
    runtime_version="v2-alpha-tpuv5",
    zones=("us-central1-a", "us-east5-a", "europe-west4-b"),
    compiler_topology="v5",
    compiler_chip_config="megacore",
    sources={
        "bf16_flops_per_chip": f"{_DOCS}v5p",
        "hbm_bytes_per_chip": f"{_DOCS}v5p (95 GiB); jax/_src/pallas/mosaic/tpu_info.py has 103 GB, which is 96 GiB",
        "hbm_usable_bytes_per_chip": f"{_COMPILER} (95.74 GiB)",
        "hbm_bytes_per_second": f"{_DOCS}v5p (2765 GB/s); jax/_src/pallas/mosaic/tpu_info.py has 2460",
        "ici_links_per_chip": f"{_DOCS}v5p (3D torus: 6 neighbours)",
        "ici_bytes_per_second_per_link": f"{_BOOK.format(90)}; {_DOCS}v5p implies 100",
        "ici_bytes_per_second": f"{_DOCS}v5p (600 GB/s in all); 6 links of 90 would be 540",
        "dcn_bits_per_second_per_host": f"{_DOCS}v5p (50 Gbps a chip, 200 a VM)",
        "chips_per_host": f"{_DOCS}v5p (4 chips a VM)",
        "largest_slice_chips": f"{_DOCS}v5p (6144 chips can be scheduled as one slice; a pod has 8960)",
    },
)

_V6E = Generation(
    name="v6e",
    prefix="v6e",
    api_type="V6E",
    aliases=("trillium",),
    bf16_flops_per_chip=918e12,
    hbm_bytes_per_chip=32 * _GIB,
    hbm_usable_bytes_per_chip=31.25 * _GIB,
    hbm_bytes_per_second=1640e9,
    ici_links_per_chip=4,
    ici_bytes_per_second_per_link=90e9,
    ici_bytes_per_second=400e9,
    ici_dimensions=2,
    dcn_bits_per_second_per_host=400e9,
    chips_per_host=4,
    cores_per_chip=1,
    devices_per_chip=1,
    names_count_cores=False,
    largest_slice_chips=256,
    device_kinds=("TPU v6 lite", "TPU v6e"),
    multislice=True,
    in_cloud_tpu_api=True,
    runtime_version="v2-alpha-tpuv6e",
    zones=(
        "us-central1-b",
        "us-east1-d",
        "us-east5-a",
        "us-east5-b",
        "europe-west4-a",
        "asia-northeast1-b",
    ),
    compiler_topology="v6e",
    compiler_chip_config="default",
    sources={
        "bf16_flops_per_chip": f"{_DOCS}v6e",
        "hbm_bytes_per_chip": f"{_DOCS}v6e says 32 GB; 31.25 GiB are usable, so GiB are meant",
        "hbm_usable_bytes_per_chip": f"{_DOCS}v6e and {_COMPILER} (31.25 GiB)",
        "hbm_bytes_per_second": f"{_DOCS}v6e (1640 GB/s)",
        "ici_links_per_chip": f"{_DOCS}v6e (2D torus: 4 neighbours)",
        "ici_bytes_per_second_per_link": f"{_BOOK.format(90)}; {_DOCS}v6e implies 100",
        "ici_bytes_per_second": f"{_DOCS}v6e (400 GB/s in all); an older page has 448",
        "dcn_bits_per_second_per_host": f"{_DOCS}v6e (100 Gbps a chip, 400 a VM of 4 chips)",
        "chips_per_host": f"{_DOCS}v6e (4 chips a VM from 16 chips on)",
        "largest_slice_chips": f"{_DOCS}v6e (256 chips)",
    },
)

_TPU7X = Generation(
    name="tpu7x",
    prefix="tpu7x",
    api_type="",
    aliases=("ironwood", "v7x", "tpuv7x"),
    bf16_flops_per_chip=2307e12,
    hbm_bytes_per_chip=192 * _GIB,
    hbm_usable_bytes_per_chip=189.5 * _GIB,
    hbm_bytes_per_second=7380e9,
    ici_links_per_chip=6,
    ici_bytes_per_second_per_link=100e9,
    ici_bytes_per_second=600e9,
    ici_dimensions=3,
    dcn_bits_per_second_per_host=400e9,
    chips_per_host=4,
    cores_per_chip=2,
    devices_per_chip=2,
    names_count_cores=True,
    largest_slice_chips=9216,
    device_kinds=("TPU7x",),
    multislice=True,
    in_cloud_tpu_api=False,
    runtime_version="",
    zones=(),
    compiler_topology="tpu7x",
    compiler_chip_config="default",
    sources={
        "bf16_flops_per_chip": f"{_DOCS}tpu7x",
        "hbm_bytes_per_chip": f"{_DOCS}tpu7x (192 GiB)",
        "hbm_usable_bytes_per_chip": f"{_COMPILER} (94.75 GiB for each of two devices)",
        "hbm_bytes_per_second": f"{_DOCS}tpu7x (7380 GB/s)",
        "ici_links_per_chip": f"{_DOCS}tpu7x (3D torus: 6 neighbours)",
        "ici_bytes_per_second_per_link": f"{_DOCS}tpu7x (600 GB/s in all) over 6 links",
        "ici_bytes_per_second": f"{_DOCS}tpu7x (600 GB/s in all)",
        "dcn_bits_per_second_per_host": f"{_DOCS}tpu7x (100 Gbps a chip), for 4 chips",
        "chips_per_host": f"{_DOCS}tpu7x (4 chips a VM)",
        "largest_slice_chips": f"{_DOCS}tpu7x (9216 chips)",
    },
)

GENERATIONS: tuple[Generation, ...] = (_V4, _V5E, _V5P, _V6E, _TPU7X)

_BY_NAME = {name: known for known in GENERATIONS for name in (known.name, known.prefix, *known.aliases)}


def generation(name: str | Generation) -> Generation:
    """The facts of a TPU generation, by the names people use for it.

    Args:
        name: Such as v4, v5e, v5litepod, v5p, v6e, trillium or tpu7x. A `Generation` is returned as it is, so
            that one with overridden numbers can be given wherever a name can.

    Raises:
        AcceleratorTypeError: If there is no such generation, or Multislice does not support it.
    """
    if isinstance(name, Generation):
        return name
    word = name.strip().lower()
    if word in _BY_NAME:
        return _BY_NAME[word]
    if word in UNSUPPORTED:
        raise AcceleratorTypeError(
            f"Multislice needs TPU v4 or later; {word} has single slices only.",
            fix=f"Choose one of {', '.join(known.name for known in GENERATIONS)}.",
        )
    close = difflib.get_close_matches(word, _BY_NAME, n=1, cutoff=0.4)
    hint = f" Did you mean {close[0]}?" if close else ""
    raise AcceleratorTypeError(
        f"{name!r} is not a TPU generation.",
        fix=f"Generations are {', '.join(known.name for known in GENERATIONS)}.{hint}",
    )


def generation_of_device(kind: str) -> Generation | None:
    """The generation of what JAX calls a device kind, such as `TPU v5 lite`; None for what is no TPU known here."""
    return next((known for known in GENERATIONS if kind in known.device_kinds), None)
