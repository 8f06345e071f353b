"""How close to the published numbers the hardware comes: the compiler's estimates, or your measurements."""

from __future__ import annotations

import dataclasses
import json
import statistics
from pathlib import Path
from typing import TYPE_CHECKING

from multislice_nb.errors import InvalidRequestError
from multislice_nb.sharding.intensity import MARGIN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from multislice_nb import tpu

__all__ = ["Calibration"]

# FLOPs over peak FLOPs in the cycles that XLA's TPU compiler (libtpu 0.0.42.1) estimates for its own program: an
# MLP of embedding 2048 and 4 layers with FSDP over 4 chips, batch 131072 per chip (65536 on v5e).
_COMPILER_ESTIMATES = {"v4": 0.944, "v5e": 0.920, "v5p": 0.962}
# Bytes over the published bandwidth in the cycles that it estimates for one pass over a float32 array of 537 MB.
_STREAMING_ESTIMATES = {"v4": 0.776, "v5e": 0.785, "v5p": 0.693}
_SOURCE = (
    "cycles estimated by XLA's TPU compiler for an MLP of embedding 2048; DCN with the overview's margin"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibration:
    """Efficiencies of the cost model, and where they come from.

    Attributes:
        matmul_efficiency: Share of peak FLOP/s that large matrix products reach.
        dcn_efficiency: Share of the hosts' DCN bandwidth that gradients get. The default is one over the margin
            that the overview advises because DCN may drop packets.
        hbm_efficiency: Share of the published HBM bandwidth that a pass over an array reaches. The default is the
            median of the compiler's estimates.
        source: Where the numbers come from.
        measurements: How many measurements they rest on.
    """

    matmul_efficiency: float
    dcn_efficiency: float = 1 / MARGIN
    hbm_efficiency: float = statistics.median(_STREAMING_ESTIMATES.values())
    source: str = "given by you"
    measurements: int = 0

    def __post_init__(self) -> None:
        for name in ("matmul_efficiency", "dcn_efficiency", "hbm_efficiency"):
            if not 0 < getattr(self, name) <= 1:
                raise InvalidRequestError(
                    f"{name} cannot be {getattr(self, name)}.", fix="Give a share above 0 and up to 1."
                )

    @classmethod
    def default(cls, generation: tpu.Generation) -> Calibration:
        """The compiler's estimate for a generation; the median of the known ones where it gives none."""
        known = _COMPILER_ESTIMATES.get(generation.name)
        efficiency = known or statistics.median(_COMPILER_ESTIMATES.values())
        source = _SOURCE if known else f"{_SOURCE} (the median of v4, v5e and v5p)"
        streaming = _STREAMING_ESTIMATES.get(generation.name, cls.hbm_efficiency)
        return cls(matmul_efficiency=efficiency, hbm_efficiency=streaming, source=source)

    def fitted(self, pairs: Iterable[tuple[float, float]], *, source: str) -> Calibration:
        """The same with the matrix products' efficiency fitted to measured steps.

        Args:
            pairs: For each measurement, seconds measured and seconds predicted with this calibration, both of
                the compute in steps that are bound by it.
            source: What was measured, when and where.

        Raises:
            InvalidRequestError: If there is no measurement.
        """
        ratios = [predicted / measured for measured, predicted in pairs if measured > 0]
        if not ratios:
            raise InvalidRequestError("There is nothing to calibrate with.", fix="Measure at least one step.")
        efficiency = min(1.0, self.matmul_efficiency * statistics.median(ratios))
        return dataclasses.replace(
            self, matmul_efficiency=efficiency, source=source, measurements=len(ratios)
        )

    def save(self, path: Path | str) -> None:
        """Write it as JSON, beside the measurements that it was made from."""
        Path(path).write_text(json.dumps(dataclasses.asdict(self), indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path | str) -> Calibration:
        """Read it back.

        Raises:
            InvalidRequestError: If the file is not a calibration.
        """
        try:
            return cls(**json.loads(Path(path).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise InvalidRequestError(
                f"{path} is not a calibration.", fix="Give a file that Calibration.save has written."
            ) from error
