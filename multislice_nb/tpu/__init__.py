"""Facts about Cloud TPU without any I/O: generations, accelerator types, topologies, runtime versions."""

from __future__ import annotations

from multislice_nb.tpu.accelerator import AcceleratorType, accelerator_types
from multislice_nb.tpu.generation import Generation
from multislice_nb.tpu.table import GENERATIONS, generation, generation_of_device
from multislice_nb.tpu.topology import Topology, topologies

__all__ = [
    "GENERATIONS",
    "AcceleratorType",
    "Generation",
    "Topology",
    "accelerator_types",
    "generation",
    "generation_of_device",
    "topologies",
]
