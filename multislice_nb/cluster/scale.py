"""What the number of workers decides: open files, heartbeats, and how soon a size that cannot work is refused.

Measured up to 64 engines with `tests/benchmarks/bench_scale.py` on two cores, and planned from that for 1024
workers, where every engine has a machine of its own:

- Open files. The notebook has two for each worker, the controller's process that listens to hearts has two for each
  engine: 2250 and 2100 with 1024, more than the 1024 that most systems begin with. Both limits are raised where the
  system lets them be, and the notebook's is checked before the first connection.
- SSH. 64 handshakes are under way at a time (`ssh.AT_ONCE`). 16 workers were connected in 0.1 to 0.6 s and 32 in 0.9 s,
  both ends on the same cores: less than half a minute for 1024. A worker that lacks the package gets it from the notebook once, 0.45 MB; 16 at a time
  (`bootstrap.UPLOADS`), so that none waits for its turn past a deadline.
- Registration. Each engine imports JAX for about a second, which spreads their arrival by itself, and then waits for
  two heartbeats, so their period matters more than the controller's speed: see `heartbeat_milliseconds`.
- A cell. The notebook serialises it once, sends a message to each engine and reads three back. That took 3 ms of the
  notebook's processor for each engine, half of it for a receipt that is now put off (`receipts`), and 2.6 ms of the
  controller's: with 1024, some two seconds until a trivial cell is back. Steps that take longer hide it.
- ipyparallel's broadcast view sends once and lets a tree of schedulers send the rest. A plain call on 4, 16 and 32
  engines took 12, 48 and 121 ms through it, and 12, 48 and 208 ms straight, with other work on the cores; on 64, with
  none, 127 and 130 ms. It gains nothing here and is not used,
  since the client keeps what every broadcast message leaves for as long as it lives; `cluster.client.broadcast_view()`
  is there for who wants it.
- The screen. Updates and results show a page, not a number of lines of each worker: see `progress` and `result`.
"""

from __future__ import annotations

from multislice_nb import _descriptors, errors

__all__ = ["CONTROLLER_FILES", "heartbeat_milliseconds", "require_descriptors"]

NOTEBOOK_FILES = 2
"""Files that a worker costs the notebook: its SSH connection, and its log."""

PROXY_FILES = 3
"""Files that a worker costs besides where a command leads to it: the pipes of that command."""

OTHER_FILES = 200
"""Files that a notebook's kernel has open besides, with some room: sockets to Jupyter, gRPC, forwarded ports."""

CONTROLLER_FILES = 2
"""Files that an engine costs the controller's process that has most of them, the one that listens to hearts."""


def require_descriptors(workers: int, *, proxied: bool = False) -> None:
    """Make sure that this process may open the files that a number of workers needs.

    Args:
        workers: How many.
        proxied: Whether a command of its own leads to each of them.

    Raises:
        errors.ConnectError: The system does not let it; nothing was connected to.
    """
    needed = OTHER_FILES + workers * (NOTEBOOK_FILES + (PROXY_FILES if proxied else 0))
    allowed = _descriptors.allow(needed)
    if allowed < needed:
        raise errors.ConnectError(
            f"{workers} workers need {needed} open files in this process, and the system allows {allowed}.",
            fix=f"Raise the hard limit, as with `ulimit -Hn {needed}` in the shell that starts Jupyter, "
            "or in /etc/security/limits.conf.",
        )


def heartbeat_milliseconds(workers: int) -> int:
    """Milliseconds between two heartbeats of a gang.

    An engine counts as registered at the second beat after it came, so a slow heart keeps `attach` waiting: 3 to 6 s
    at ipyparallel's own 3 s. The controller hears at most 250 beats a second, whatever the number of engines.
    """
    return max(500, 4 * workers)
