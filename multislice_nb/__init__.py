"""Cloud TPU Multislice from a notebook.

```python
import multislice_nb as ms
cloud = ms.connect()                     # no project named: the emulator on this machine
qr = cloud.create("demo", accelerator_type="v4-16", node_count=2)
qr.wait()
cluster = ms.attach(qr)
cluster.run("import jax; jax.device_count()").values
```

Importing this package imports nothing heavy: each name below comes with its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from multislice_nb._lazy import lazily

if TYPE_CHECKING:
    from multislice_nb import cloud, cluster, errors, experiments, jobs, plotting, profiles, sharding, tpu
    from multislice_nb.cloud import connect
    from multislice_nb.cluster import attach
    from multislice_nb.experiments import sweep
    from multislice_nb.experiments.planning import largest_batch, plan
    from multislice_nb.magics import load_ipython_extension, unload_ipython_extension
    from multislice_nb.plotting import plot_intensity
    from multislice_nb.sharding import recommend
    from multislice_nb.widgets import panel

__version__ = "0.1.0"

__all__ = [
    "attach",
    "cloud",
    "cluster",
    "connect",
    "errors",
    "experiments",
    "jobs",
    "largest_batch",
    "load_ipython_extension",
    "panel",
    "plan",
    "plot_intensity",
    "plotting",
    "profiles",
    "recommend",
    "sharding",
    "sweep",
    "tpu",
    "unload_ipython_extension",
]

_ROOMS = ("cloud", "cluster", "errors", "experiments", "jobs", "plotting", "profiles", "sharding", "tpu")
_HOMES: dict[str, str | tuple[str, str]] = {
    **{room: (room, "") for room in _ROOMS},
    "attach": "cluster",
    "connect": "cloud",
    "largest_batch": "experiments.planning",
    "load_ipython_extension": "magics",
    "panel": "widgets",
    "plan": "experiments.planning",
    "plot_intensity": "plotting",
    "recommend": "sharding",
    "sweep": "experiments",
    "unload_ipython_extension": "magics",
}

__getattr__, __dir__ = lazily(__name__, _HOMES)
