"""Profiles: traces of jax.profiler from all workers, and where the time of each device went.

```python
result = cluster.run("state, loss = step(state, batch)", profile=True)
result.profile; result.profile.frame
ms.profiles.read("profiles")             # again later, or a folder that your own code has traced into
```
"""

from __future__ import annotations

from pathlib import Path

from multislice_nb.errors import InvalidRequestError
from multislice_nb.profiles.profile import SUFFIX, HostProfile, Profile, read_run, runs_folder
from multislice_nb.profiles.traces import DeviceTime

__all__ = ["DeviceTime", "HostProfile", "Profile", "read"]


def read(folder: str | Path, run: str | None = None) -> Profile:
    """Read traces that are on this machine.

    Args:
        folder: The log folder, as given to `jax.profiler.start_trace`, `--profile-folder` or xprof.
        run: Which run; the latest if left out.

    Raises:
        InvalidRequestError: There is no such run.
    """
    where = Path(folder).expanduser()
    runs = sorted({path.parent.name for path in runs_folder(where).glob(f"*/*{SUFFIX}")})
    if not runs or (run is not None and run not in runs):
        known = f"It has {', '.join(runs)}." if runs else "Make one with %%multislice --profile."
        raise InvalidRequestError(f"There is no {f'run {run}' if run else 'profile'} in {where}.", fix=known)
    return read_run(where, run or runs[-1])
