"""From ACTIVE to the first cell on every worker: `attach` beside ipyparallel's own SSH launcher.

    python tests/benchmarks/bench_attach.py [workers] [rounds]

Both start an engine on each worker of the same slices of the emulator, over SSH, and run `1 + 1` on all of them.
Ours also joins them in jax.distributed and checks every device, which the other leaves to its user.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from multislice_nb.cloud import QueuedResource
    from multislice_nb.emulator.daemon import EmulatorAddress


def ours(queued_resource: QueuedResource) -> float:
    """Seconds until a first cell has run through `attach`."""
    import multislice_nb as ms

    start = time.perf_counter()
    cluster = ms.attach(queued_resource, deadline=300)
    cluster.run("1 + 1")
    seconds = time.perf_counter() - start
    cluster.shutdown()
    return seconds


def ssh_config(folder: Path, address: EmulatorAddress, hosts: Sequence[str]) -> Path:
    """What OpenSSH, which ipyparallel calls, has to know of the emulator's workers."""
    path = folder / "ssh_config"
    path.write_text(
        f"Host {' '.join(hosts)}\n  Port {address.ssh_port}\n  User {address.ssh_user}\n"
        f"  IdentityFile {address.ssh_key}\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n"
    )
    return path


def theirs(config_file: Path, hosts: Sequence[str]) -> float:
    """Seconds until a first cell has run through ipyparallel's SSH launcher."""
    import ipyparallel
    from traitlets.config import Config

    config: Any = Config()
    config.SSHEngineSetLauncher.engines = dict.fromkeys(hosts, 1)
    for launcher in ("SSHLauncher", "SSHEngineSetLauncher", "SSHEngineLauncher"):
        config[launcher].ssh_args = ["-F", str(config_file)]
        config[launcher].scp_args = ["-F", str(config_file)]
    start = time.perf_counter()
    cluster = ipyparallel.Cluster(
        engines="ssh",
        controller_ip="127.0.0.1",
        config=config,
        engine_timeout=600,
        profile_dir=tempfile.mkdtemp(dir=config_file.parent),
    )
    try:
        client = cluster.start_and_connect_sync(n=len(hosts))
        client[:].execute("1 + 1", block=True)
        return time.perf_counter() - start
    finally:
        cluster.stop_cluster_sync()


def main(workers: int = 16, rounds: int = 2) -> None:
    """Take turns, and print medians and their ratio."""
    import multislice_nb as ms
    from multislice_nb.emulator import daemon

    with tempfile.TemporaryDirectory() as home:
        os.environ["MULTISLICE_NB_HOME"] = home
        try:
            queued_resource = ms.connect().create("bench", accelerator_type=f"v4-{workers * 4}", node_count=2)
            queued_resource.wait()
            hosts = [endpoint.ip_address for node in queued_resource.nodes() for endpoint in node.endpoints]
            config_file = ssh_config(Path(home), daemon.ensure_running(), hosts)
            times = [(ours(queued_resource), theirs(config_file, hosts)) for _ in range(rounds)]
            mine, other = (statistics.median(column) for column in zip(*times, strict=True))
            ratio = statistics.median(b / a for a, b in times)
            print("| workers | attach | ipyparallel's SSH launcher | times sooner |\n|---|---|---|---|")
            print(f"| {len(hosts)} | {mine:.1f} s | {other:.1f} s | {ratio:.1f} |")
        finally:
            daemon.stop()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
