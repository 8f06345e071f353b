"""Compiles one program for a TPU that is not there. Runs in a process of its own: `python -m ...compiling IN OUT`.

The process is the planner's alone, because libtpu takes a lock for the whole machine unless told otherwise, writes
to stderr, and needs about a gigabyte while it compiles. It reads a pickled `CompileRequest` and writes JSON.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import pickle
import re
import shutil
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jax

    from multislice_nb.sharding.parallelism import Parallelism

__all__ = ["CompileRequest", "main"]

FORMAT = 5  # of the result; what is cached in another one is compiled again
_UNITS = {"": 1.0, "K": 2.0**10, "M": 2.0**20, "G": 2.0**30, "T": 2.0**40}
_SIZE = r"([0-9.]+)([KMGT]?)"
_NEEDED = (
    re.compile(rf"\({_SIZE}\) exceeds available HBM \({_SIZE}\)"),
    re.compile(rf"Used {_SIZE} of {_SIZE} hbm", re.IGNORECASE),
)


@dataclass(frozen=True, kw_only=True)
class CompileRequest:
    """What to compile.

    Attributes:
        program: A pickled function of the mesh, and of the batch where there is one, that returns a jitted
            function and its arguments as shapes.
        batch: Examples per device, or None.
        parallelism: Resolved.
        topology: Such as `v4:2x2x1`; empty to compile for virtual CPU devices.
        chip_config: Such as `megacore`.
        host_bounds: Chips of a host along each dimension.
        slices: How many.
        devices: JAX devices of all slices.
        cache: Folder of results, or None.
    """

    program: bytes
    batch: int | None
    parallelism: Parallelism
    topology: str
    chip_config: str
    host_bounds: tuple[int, int, int]
    slices: int
    devices: int
    cache: str | None


def main(arguments: list[str]) -> int:
    """Compile what the first file asks for and write the answer to the second."""
    _end_with_parent(Path(arguments[0]).parent)
    request = pickle.loads(Path(arguments[0]).read_bytes())  # noqa: S301 - written by our own parent process
    try:
        answer = _answer(request)
    except Exception as error:  # noqa: BLE001 - whatever the user's program raises is the answer
        answer = {
            "status": "error",
            "type": type(error).__name__,
            "message": str(error),
            "traceback": traceback.format_exc(),
        }
    Path(arguments[1]).write_text(json.dumps(answer), encoding="utf-8")
    return 0


def _end_with_parent(folder: Path) -> None:
    """When the process that asked dies, this one does too and takes its folder with it.

    The parent holds the other end of standard input, which the kernel closes whatever the parent died of.
    """

    def wait() -> None:
        while os.read(0, 4096):
            pass
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _answer(request: CompileRequest) -> dict[str, Any]:
    from multislice_nb.sharding.mesh import make_mesh

    program = pickle.loads(request.program)  # noqa: S301 - written by our own parent process
    mesh = make_mesh(request.parallelism, _devices(request))
    function, arguments = program(mesh) if request.batch is None else program(mesh, request.batch)
    lowered = function.lower(*arguments)
    place = _cache_file(request, lowered.as_text(), mesh)
    if place is not None and (known := _kept(place)):
        return {**known, "cached": True}
    answer = _compile(lowered, for_tpu=bool(request.topology))
    not_kept = "" if place is None else _keep(place, answer)
    return {**answer, "cached": False, "not_kept": not_kept}


def _devices(request: CompileRequest) -> list[Any]:
    import jax

    if not request.topology:
        return jax.devices("cpu")
    from jax.experimental import topologies

    several = {"num_slices": request.slices} if request.slices > 1 else {}
    described = topologies.get_topology_desc(
        platform="tpu",
        topology_name=request.topology,
        chip_config_name=request.chip_config,
        chips_per_host_bounds=request.host_bounds,
        **several,
    )
    return list(described.devices)


def _cache_file(request: CompileRequest, text: str, mesh: jax.sharding.Mesh) -> Path | None:
    """Where the answer for this very program, target and compiler is kept."""
    if request.cache is None:
        return None
    parts = (
        str(FORMAT),
        request.topology,
        request.chip_config,
        str(request.host_bounds),
        str(request.slices),
        compiler(for_tpu=bool(request.topology)),
        os.environ.get("XLA_FLAGS", ""),
        os.environ.get("LIBTPU_INIT_ARGS", ""),
        # Not in the text: meshes of the same shape differ in which of their axes cross slices.
        str([device.id for device in mesh.devices.flat]),
        text,
    )
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return Path(request.cache) / f"{digest}.json"


def compiler(*, for_tpu: bool) -> str:
    """The compiler and its version, as people read it."""
    jax = importlib.metadata.version("jax")
    if for_tpu:
        return f"XLA for TPU (libtpu {importlib.metadata.version('libtpu')}, jax {jax})"
    return f"XLA for CPU (jax {jax})"


def _kept(place: Path) -> dict[str, Any] | None:
    """An answer from before; None if there is none that can be read: it is made again."""
    try:
        answer: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return answer


def _keep(place: Path, answer: dict[str, Any]) -> str:
    """Keep an answer for another time, and say why if that is not possible: it has been made all the same."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = place.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps(answer), encoding="utf-8")
        draft.replace(place)
    except OSError as error:
        return f"{place.parent} cannot be written: {error.strerror}"
    return ""


def _compile(lowered: Any, *, for_tpu: bool) -> dict[str, Any]:
    begun = time.perf_counter()
    try:
        compiled = lowered.compile()
    except Exception as error:
        sizes = _sizes(str(error))
        if sizes is None:
            raise
        answer: dict[str, Any] = {
            "status": "out of memory",
            "needed_bytes": sizes[0],
            "limit_bytes": sizes[1],
        }
    else:
        answer = {"status": "ok", **_read(compiled, for_tpu=for_tpu)}
    return {
        **answer,
        "compile_seconds": time.perf_counter() - begun,
        "compiler": compiler(for_tpu=for_tpu),
    }


def _sizes(message: str) -> tuple[float, float] | None:
    """Bytes needed and available, from the compiler's out-of-memory error."""
    for pattern in _NEEDED:
        if found := pattern.search(message):
            needed, unit, limit, limit_unit = found.groups()
            return float(needed) * _UNITS[unit], float(limit) * _UNITS[limit_unit]
    return None


def _read(compiled: Any, *, for_tpu: bool) -> dict[str, Any]:
    from multislice_nb.sharding import hlo, program, schedule

    module = hlo.Module.parse(compiled.as_text())
    if module.unknown_loops:
        return {"status": "unknown loop", "loops": list(module.unknown_loops)}
    cost = compiled.cost_analysis()
    extra = program.loop_flops(module)
    found: dict[str, Any] = {
        "flops": float(cost["flops"]) + extra,
        "loop_flops": extra,
        "bytes_accessed": float(cost.get("bytes accessed", 0.0)),
    }
    if for_tpu:
        memory = compiled.memory_analysis()
        found |= {
            "peak_bytes": _peak(memory),
            "argument_bytes": memory.argument_size_in_bytes,
            "temporary_bytes": memory.temp_size_in_bytes,
            "remat_flops": program.remat_flops(module),
            "ici": program.collectives(module),
            "dcn": program.dcn_payload(module),
            "events": schedule.events(module),
        }
    return found


def _peak(memory: Any) -> float:
    """The compiler's own peak; in versions without it, everything that is there at the end of the step."""
    peak = getattr(memory, "peak_memory_in_bytes", 0)
    whole = memory.argument_size_in_bytes + memory.temp_size_in_bytes
    return float(peak or whole + memory.output_size_in_bytes - memory.alias_size_in_bytes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
