"""What is known of one TPU generation, each number with the source it comes from."""

from __future__ import annotations

import dataclasses
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from multislice_nb.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Generation"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Generation:
    """One TPU generation: its names, its sizes and its speeds.

    Bandwidths are one way. A number that differs on your hardware can be replaced with `override`, and every
    function of `multislice_nb.sharding` takes the result where it takes a generation's name.

    Attributes:
        name: The everyday name: v4, v5e, v5p, v6e or tpu7x.
        prefix: What accelerator types start with: v4, v5litepod, v5p, v6e or tpu7x.
        api_type: The Cloud TPU API's AcceleratorConfig.Type, empty where the API has none.
        aliases: Other names people use.
        bf16_flops_per_chip: Peak FLOP/s of one chip in bf16.
        hbm_bytes_per_chip: HBM of one chip, in bytes.
        hbm_usable_bytes_per_chip: What the compiler lets a program use of it, in bytes.
        hbm_bytes_per_second: HBM bandwidth of one chip, in bytes per second.
        ici_links_per_chip: ICI links of one chip.
        ici_bytes_per_second_per_link: One link, one way, in bytes per second.
        ici_bytes_per_second: All links of one chip, one way, in bytes per second.
        ici_dimensions: 3 for a 3D mesh or torus of chips, 2 for a 2D one.
        dcn_bits_per_second_per_host: DCN bandwidth of one host, in bits per second.
        chips_per_host: The chips which share that DCN figure.
        cores_per_chip: TensorCores of one chip.
        devices_per_chip: JAX devices of one chip.
        names_count_cores: Whether N of a name such as v4-N counts TensorCores; it counts chips otherwise.
        largest_slice_chips: Chips of the largest slice.
        device_kinds: What JAX calls its devices, in one version or another.
        multislice: Whether Multislice supports it.
        in_cloud_tpu_api: Whether the Cloud TPU API (queued resources) offers it.
        runtime_version: The default runtime version, empty where the API has none.
        zones: Zones of the newest public pages.
        compiler_topology: What the ahead-of-time compiler calls it, as in `v5:2x2x1` for v5p.
        compiler_chip_config: The compiler's chip configuration which makes one device of one chip.
        sources: For each number above, where it comes from, and what other sources say.
    """

    name: str
    prefix: str
    api_type: str
    aliases: tuple[str, ...]
    bf16_flops_per_chip: float
    hbm_bytes_per_chip: float
    hbm_usable_bytes_per_chip: float
    hbm_bytes_per_second: float
    ici_links_per_chip: int
    ici_bytes_per_second_per_link: float
    ici_bytes_per_second: float
    ici_dimensions: int
    dcn_bits_per_second_per_host: float
    chips_per_host: int
    cores_per_chip: int
    devices_per_chip: int
    names_count_cores: bool
    largest_slice_chips: int
    device_kinds: tuple[str, ...]
    multislice: bool
    in_cloud_tpu_api: bool
    runtime_version: str
    zones: tuple[str, ...]
    compiler_topology: str
    compiler_chip_config: str
    sources: Mapping[str, str] = dataclasses.field(repr=False, hash=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sources", MappingProxyType(dict(self.sources)))

    @property
    def bf16_flops_per_host(self) -> float:
        """Peak FLOP/s of the chips that share one host's DCN figure."""
        return self.bf16_flops_per_chip * self.chips_per_host

    @property
    def dcn_bits_per_second_per_chip(self) -> float:
        """DCN bandwidth of one host over its chips, in bits per second."""
        return self.dcn_bits_per_second_per_host / self.chips_per_host

    @property
    def units_per_chip(self) -> int:
        """What N of an accelerator type counts, per chip: its TensorCores, or the chip itself."""
        return self.cores_per_chip if self.names_count_cores else 1

    @property
    def unit(self) -> str:
        """The word for what N of an accelerator type counts."""
        return "TensorCores" if self.names_count_cores else "chips"

    def override(self, **numbers: Any) -> Self:
        """The same generation with numbers of your own, remembered as such in `sources`.

        Args:
            **numbers: Fields and their new values, such as `dcn_bits_per_second_per_host=100e9`.

        Raises:
            InvalidRequestError: If there is no such number, or a number is not above zero.
        """
        known = set(self.sources)
        for field, value in numbers.items():
            if field not in known:
                raise InvalidRequestError(
                    f"{field} is not a number of a TPU generation.",
                    fix=f"The numbers are {', '.join(sorted(known))}.",
                )
            if not value > 0:
                raise InvalidRequestError(f"{field} cannot be {value!r}.", fix="Give a number above zero.")
        own = dict.fromkeys(numbers, "given by you")
        return dataclasses.replace(self, **numbers, sources={**self.sources, **own})
