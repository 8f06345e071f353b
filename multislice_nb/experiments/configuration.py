"""One point of a sweep: a strategy, a batch size, a model, and how often it is timed."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import TYPE_CHECKING

from multislice_nb.errors import InvalidRequestError
from multislice_nb.experiments.training import Options

if TYPE_CHECKING:
    from multislice_nb.experiments.workload import Workload
    from multislice_nb.sharding import Parallelism


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """What is measured on the workers.

    Attributes:
        strategy: The name under which it is plotted.
        parallelism: Resolved for the slices at hand.
        batch_per_device: Rows of the batch per JAX device: the work of a device stays the same as slices are added
            (weak scaling).
        workload: The model.
        options: How it is trained.
        steps: Steps timed, one by one.
        warmup: Steps run before that.
    """

    strategy: str
    parallelism: Parallelism
    batch_per_device: int
    workload: Workload
    options: Options = dataclasses.field(default_factory=Options)
    steps: int = 10
    warmup: int = 1

    def __post_init__(self) -> None:
        faults = [
            (f"{name} cannot be {value}.", f"It must be an integer of at least {least}.")
            for name, value, least in (
                ("batch_per_device", self.batch_per_device, 1),
                ("steps", self.steps, 1),
                ("warmup", self.warmup, 0),
            )
            if isinstance(value, bool) or not isinstance(value, int) or value < least
        ]
        if faults:
            raise InvalidRequestError.of_faults(str(self), faults)

    @property
    def slices(self) -> int:
        """How many slices take part: the product of the DCN degrees."""
        return math.prod(self.parallelism.dcn)

    @property
    def settings(self) -> dict[str, object]:
        """Everything that makes it a different measurement, as flat columns."""
        degrees = {
            f"{network}_{axis}": degree
            for network in ("ici", "dcn")
            for axis, degree in zip(
                ("data", "fsdp", "tensor"), getattr(self.parallelism, network), strict=True
            )
        }
        return {
            "workload": self.workload.name,
            **self.workload.settings,
            **degrees,
            "batch_per_device": self.batch_per_device,
            **dataclasses.asdict(self.options),
            "steps": self.steps,
            "warmup": self.warmup,
        }

    def key(self, **place: object) -> str:
        """The same text for the same measurement in the same place (accelerator type, slices, devices).

        A sweep that goes on skips the keys that its file already holds.
        """
        return json.dumps({**self.settings, **place}, sort_keys=True)

    def __str__(self) -> str:
        return f"{self.strategy} batch {self.batch_per_device}"
