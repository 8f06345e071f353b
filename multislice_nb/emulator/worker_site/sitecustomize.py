"""Gives JAX's CPU devices a working `slice_index` on an emulated TPU VM.

On a TPU each device knows its slice; CPU devices do not, and `mesh_utils.create_hybrid_device_mesh` needs it.
This runs at every start of Python on the VM, imports no JAX of its own, and does nothing where JAX is absent
or differs from what is expected.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys

_MODULES = ("jaxlib._jax", "jaxlib.xla_extension")


def _add_slice_index(module):
    device = getattr(module, "Device", None)
    workers = int(os.environ.get("MULTISLICE_NB_WORKERS_PER_SLICE", "0"))
    if device is None or workers < 1:
        return
    device.slice_index = property(lambda self: self.process_index // workers)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds JAX's extension module as everybody else does, and adds a step after it is loaded."""

    def find_spec(self, name, path, target=None):
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

        def exec_module(module):
            execute(module)
            _add_slice_index(module)

        try:
            spec.loader.exec_module = exec_module
        except AttributeError:
            return spec
        return spec


def _chain():
    """Run the sitecustomize that this one hides, if there is one."""
    here = os.path.dirname(os.path.abspath(__file__))
    path = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


sys.meta_path.insert(0, _Finder())
_chain()
