"""Sharding: degrees of parallelism, meshes, the arithmetic of when slices scale, predictions and advice.

```python
sharding.parse_strategy("fsdp", chips_per_slice=8, slices=2)      # 8-way FSDP + 2-way data over DCN
sharding.smallest_batch("v4", slices=2)                           # 176000.0 tokens per slice
sharding.predict(sharding.Model.mlp(), "v4-16", slices=2, batch_per_chip=131072)
sharding.recommend("v4-128", 8, parameters=10e9, tokens_per_slice=400_000)
sharding.plan(program, accelerator_type="v4-16", slices=2, batch=131072)    # asks the TPU compiler
```
"""

from __future__ import annotations

from multislice_nb.sharding.advisor import Recommendation, Recommendations, recommend
from multislice_nb.sharding.calibration import Calibration
from multislice_nb.sharding.closed_forms import Traffic, hbm_bytes, memory_bytes, traffic
from multislice_nb.sharding.cost import Prediction, predict
from multislice_nb.sharding.intensity import (
    advised_batch,
    arithmetic_intensity,
    dcn_bits_per_parameter,
    operational_intensity,
    ring_factor,
    slices_for_batch,
    smallest_batch,
)
from multislice_nb.sharding.largest import largest_batch
from multislice_nb.sharding.measured import calibrate, calibration_path, predict_row
from multislice_nb.sharding.mesh import make_mesh
from multislice_nb.sharding.model import Model
from multislice_nb.sharding.naming import parse_strategy
from multislice_nb.sharding.parallelism import AXES, Parallelism
from multislice_nb.sharding.pipeline import Pipeline, pipelines
from multislice_nb.sharding.planner import compare_plans, plan
from multislice_nb.sharding.plans import LargestBatch, Plan, Plans
from multislice_nb.sharding.roofline import (
    DcnCheck,
    check_dcn,
    fsdp_intensity,
    most_tensor_ways,
    pipeline_intensity,
    smallest_fsdp_batch,
    tensor_intensity,
)
from multislice_nb.sharding.strategies import Advice, advise, enumerate_strategies

__all__ = [
    "AXES",
    "Advice",
    "Calibration",
    "DcnCheck",
    "LargestBatch",
    "Model",
    "Parallelism",
    "Pipeline",
    "Plan",
    "Plans",
    "Prediction",
    "Recommendation",
    "Recommendations",
    "Traffic",
    "advise",
    "advised_batch",
    "arithmetic_intensity",
    "calibrate",
    "calibration_path",
    "check_dcn",
    "compare_plans",
    "dcn_bits_per_parameter",
    "enumerate_strategies",
    "fsdp_intensity",
    "hbm_bytes",
    "largest_batch",
    "make_mesh",
    "memory_bytes",
    "most_tensor_ways",
    "operational_intensity",
    "parse_strategy",
    "pipeline_intensity",
    "pipelines",
    "plan",
    "predict",
    "predict_row",
    "recommend",
    "ring_factor",
    "slices_for_batch",
    "smallest_batch",
    "smallest_fsdp_batch",
    "tensor_intensity",
    "traffic",
]
