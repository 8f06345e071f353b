"""What a process on an emulated TPU VM finds in its environment.

It starts from nothing: what the notebook or the daemon had in its own environment stays there.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from multislice_nb.emulator.address import private_folder, write_private
from multislice_nb.emulator.processes import MARK

if TYPE_CHECKING:
    from multislice_nb.emulator.vm import Vm

WORKER_SITE = Path(__file__).parent / "worker_site"
# Where megascale's coordinator listens on worker 0 of slice 0, as on TPU VMs.
MEGASCALE_PORT = 8080
# Kept because numerical libraries pick their kernels by it on machines that they do not know.
_KEPT = ("OPENBLAS_CORETYPE", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR")


def write_interpreter_shims(folder: Path) -> None:
    """Put `python3` and `python` into a folder; each starts this interpreter, its virtual environment included."""
    private_folder(folder)
    for name in ("python3", "python"):
        script = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n'
        write_private(folder / name, script, mode=0o700)


def _base(shims: Path) -> dict[str, str]:
    path = [str(shims), str(Path(sys.executable).parent), "/usr/local/sbin", "/usr/local/bin"]
    path += ["/usr/sbin", "/usr/bin", "/sbin", "/bin"]
    # Last, so that environments of this Python's version can be made from it and none has to be downloaded.
    path.append(str(Path(sys.base_prefix) / "bin"))
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {"PATH": ":".join(path), "LANG": "C.UTF-8", "SHELL": "/bin/bash", **kept}


def megascale(vm: Vm) -> dict[str, str]:
    """The variables that tell libtpu about the other slices; none for a slice that is alone."""
    if vm.slices < 2:
        return {}
    return {
        "MEGASCALE_NUM_SLICES": str(vm.slices),
        "MEGASCALE_SLICE_ID": str(vm.slice_id),
        "MEGASCALE_COORDINATOR_ADDRESS": f"{vm.coordinator_address()}:{MEGASCALE_PORT}",
    }


def worker_environment(vm: Vm, *, user: str, shims: Path) -> dict[str, str]:
    """All of a worker's environment variables."""
    accelerator = vm.accelerator
    return {
        **_base(shims),
        **megascale(vm),
        # gcloud's own variable for where the Cloud TPU API is.
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": vm.machine.api_url,
        "HOME": str(vm.home),
        "USER": user,
        "LOGNAME": user,
        "TMPDIR": str(vm.tmp),
        "HOSTNAME": vm.hostname,
        MARK: vm.mark,
        "GCE_METADATA_HOST": vm.metadata_host,
        "GCE_METADATA_IP": vm.metadata_host,
        # JAX takes this machine for a TPU VM, so that a bare `jax.distributed.initialize()` finds its place here too.
        "JAX_FORCE_TPU_INIT": "1",
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": str(accelerator.devices_per_worker),
        "MULTISLICE_NB_WORKERS_PER_SLICE": str(accelerator.workers),
        "NODE_ID": vm.node_id,
        "PYTHONPATH": str(WORKER_SITE),
        "TPU_ACCELERATOR_TYPE": accelerator.name,
        "TPU_NAME": vm.node_id,
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_TOPOLOGY": accelerator.topology,
        "TPU_WORKER_HOSTNAMES": ",".join(vm.slice_addresses()),
        "TPU_WORKER_ID": str(vm.worker_id),
        "ZONE": vm.zone,
    }
