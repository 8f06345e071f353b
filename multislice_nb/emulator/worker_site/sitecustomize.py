"""Gives JAX's CPU devices a working `slice_index` on an emulated TPU VM.

On a TPU each device knows its slice; CPU devices do not, and `mesh_utils.create_hybrid_device_mesh` needs it.
This runs at every start of Python on the VM, imports no JAX of its own, and does nothing where JAX is absent
or differs from what is expected. The folder is no package: it goes on the path for this one module.
"""  # noqa: INP001

import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

# Where JAX keeps the class of its devices; the second name is that of older releases.
_MODULES = ("jaxlib._jax", "jaxlib.xla_extension")


def _add_slice_index(module: ModuleType) -> None:
    device = getattr(module, "Device", None)
    workers = int(os.environ.get("MULTISLICE_NB_WORKERS_PER_SLICE", "0"))
    if device is not None and workers > 0:
        device.slice_index = property(lambda self: self.process_index // workers)


class _Finder:
    """Finds JAX's extension module as everybody else does, and adds a step after it is loaded."""

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - the import system's signature
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        if name not in _MODULES:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_add(module: ModuleType) -> None:
            execute(module)
            _add_slice_index(module)

        spec.loader.exec_module = execute_and_add  # type: ignore[method-assign]  # the loader is this module's own
        return spec


def _run_hidden() -> None:
    """Run the sitecustomize that this one hides, if there is one."""
    here = os.path.realpath(os.path.dirname(__file__))  # noqa: PTH120 - pathlib would slow every start down
    path = [entry for entry in sys.path if os.path.realpath(entry) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


sys.meta_path.insert(0, _Finder())
_run_hidden()
