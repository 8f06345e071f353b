"""Experiments: what is trained, how it is measured on live workers, sweeps, and their results.

```python
results = ms.sweep(strategies=["fsdp", "tensor"], batch_sizes=[64, 128, 256], embedding=256)
results.frame; results.plot_tflops(); results.plot_intensity()
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from multislice_nb._lazy import lazily

if TYPE_CHECKING:
    from multislice_nb.experiments.catalogue import Notebook, notebook, notebooks
    from multislice_nb.experiments.comparison import Comparison, compare
    from multislice_nb.experiments.configuration import Configuration
    from multislice_nb.experiments.execution import NotebookProgress
    from multislice_nb.experiments.gridfile import read_request
    from multislice_nb.experiments.local import LocalCluster
    from multislice_nb.experiments.progress import SweepProgress
    from multislice_nb.experiments.records import record
    from multislice_nb.experiments.request import SweepRequest
    from multislice_nb.experiments.results import Results
    from multislice_nb.experiments.runner import NotebookRun, run, run_matrix
    from multislice_nb.experiments.runs import Runs
    from multislice_nb.experiments.sweeping import asweep, run_request, sweep
    from multislice_nb.experiments.training import Options
    from multislice_nb.experiments.transformer import Transformer
    from multislice_nb.experiments.workload import MLP, Workload

__all__ = [
    "MLP",
    "Comparison",
    "Configuration",
    "LocalCluster",
    "Notebook",
    "NotebookProgress",
    "NotebookRun",
    "Options",
    "Results",
    "Runs",
    "SweepProgress",
    "SweepRequest",
    "Transformer",
    "Workload",
    "asweep",
    "compare",
    "notebook",
    "notebooks",
    "read_request",
    "record",
    "run",
    "run_matrix",
    "run_request",
    "sweep",
]

# Late: workers import this package for `measure` alone, and a notebook without a sweep needs no jax.
_HOMES = {
    "Comparison": "comparison",
    "Configuration": "configuration",
    "LocalCluster": "local",
    "MLP": "workload",
    "Notebook": "catalogue",
    "NotebookProgress": "execution",
    "NotebookRun": "runner",
    "Options": "training",
    "Results": "results",
    "Runs": "runs",
    "SweepProgress": "progress",
    "SweepRequest": "request",
    "Transformer": "transformer",
    "Workload": "workload",
    "asweep": "sweeping",
    "compare": "comparison",
    "notebook": "catalogue",
    "notebooks": "catalogue",
    "read_request": "gridfile",
    "record": "records",
    "run": "runner",
    "run_matrix": "runner",
    "run_request": "sweeping",
    "sweep": "sweeping",
}

__getattr__, __dir__ = lazily(__name__, _HOMES)
