"""`python -m multislice_nb demo`: the quickstart notebook, run from its first cell to its last.

It has an emulator of its own in a temporary folder, which is stopped at the end whatever happens, so that it
neither meets nor disturbs anything else on this machine.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multislice_nb import errors

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

__all__ = ["add_parser", "run", "run_quickstart"]

NOTEBOOK = "00_quickstart.ipynb"

IDLE_SECONDS = "60"
"""After which the emulator ends itself, should this process be killed before it can stop it."""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `demo` to the command line."""
    parser = commands.add_parser("demo", help="run the quickstart notebook on the emulator")
    parser.add_argument(
        "--output", type=Path, default=Path("multislice-demo"), help="folder for what it makes"
    )
    parser.add_argument("--accelerator-type", default="v4-16", help="what each slice is (default: v4-16)")
    parser.add_argument("--node-count", type=int, default=2, help="slices (default: 2)")


def run(arguments: argparse.Namespace) -> int:
    """Run the demo and say what it made and how to open it.

    Raises:
        errors.InvalidRequestError: There are no such slices.
        errors.ExperimentError: A cell failed.
    """
    from multislice_nb.cloud import QueuedResourceRequest

    asked = {"accelerator_type": arguments.accelerator_type, "node_count": arguments.node_count}
    QueuedResourceRequest(name="quickstart", **asked)  # what cannot be is refused before anything is made
    made = run_quickstart(arguments.output, asked)
    print(f"\nThe executed notebook:  {made[0]}")
    for path in made[1:]:
        print(f"A chart:                {path}")
    if importlib.util.find_spec("jupyterlab") is None:
        print(f"For JupyterLab:         {_python()} -m pip install jupyterlab")
    print(f"Open it in JupyterLab:  {_python()} -m jupyterlab {made[0]}")
    return 0


def _python() -> str:
    """This Python as a user would type it from here."""
    try:
        return os.path.relpath(sys.executable)
    except ValueError:  # on another drive
        return sys.executable


def run_quickstart(output: Path, parameters: dict[str, Any]) -> list[Path]:
    """Execute the quickstart notebook through papermill on an emulator of its own.

    Args:
        output: Folder for the executed notebook, the charts and the results file.
        parameters: Values for the notebook's parameters cell.

    Returns:
        The executed notebook and the charts.

    Raises:
        errors.ExperimentError: A cell failed; names the notebook as far as it came.
    """
    import papermill

    from multislice_nb.emulator.own import own_home

    output.mkdir(parents=True, exist_ok=True)
    executed = output / NOTEBOOK
    idle = os.environ.get("MULTISLICE_NB_EMULATOR_IDLE", IDLE_SECONDS)
    with own_home(MULTISLICE_NB_EMULATOR_IDLE=idle), _terminate_as_interrupt():
        try:
            papermill.execute_notebook(
                str(find_notebook(NOTEBOOK)),
                str(executed),
                parameters=parameters | {"output": str(output.resolve())},
                kernel_name="python3",
                progress_bar=True,
                # What a cell says is in the notebook; what the kernel's own log says of its transport, or of
                # being interrupted, is nothing that a reader of this terminal could act on.
                extra_arguments=["--log-level=CRITICAL"],
            )
        except papermill.PapermillExecutionError as error:
            raise errors.ExperimentError(
                f"Cell {error.exec_count} of the quickstart failed: {error.ename}: {error.evalue}",
                fix=f"The notebook as far as it came is {executed}.",
            ) from error
    return [executed, *sorted(output.glob("*.png"))]


def find_notebook(name: str) -> Path:
    """A notebook that comes with this package: inside it when installed, beside it in a checkout.

    Raises:
        errors.ExperimentError: It is in neither place.
    """
    from multislice_nb.experiments import catalogue

    path = catalogue.folder() / name
    if not path.exists():
        raise errors.ExperimentError(f"The notebook {name} is not there.", fix="Install multislice_nb again.")
    return path


@contextlib.contextmanager
def _terminate_as_interrupt() -> Iterator[None]:
    """Clean up on SIGTERM as on Ctrl-C."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
