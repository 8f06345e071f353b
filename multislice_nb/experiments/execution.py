"""Executes a notebook in a kernel of its own, cell by cell, and says how far it is.

papermill writes the parameters into it, nbclient runs it, on the background loop: an interrupt in the caller's
thread ends the kernel, and no progress bar needs a widget. The notebook is on disk after every cell.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from typing import TYPE_CHECKING, Any

from multislice_nb._texts import lasted
from multislice_nb.experiments.catalogue import headings

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping
    from pathlib import Path

    from nbclient import NotebookClient

    from multislice_nb.experiments.catalogue import Notebook

__all__ = ["Execution", "NotebookProgress"]

_KERNEL = "python3"
_TICK = 0.2
"""Seconds between two looks at a cell that runs."""


@dataclasses.dataclass(frozen=True, slots=True)
class NotebookProgress:
    """How far the run of a notebook is.

    Attributes:
        name: Of the notebook.
        cell: Number of the code cell that runs, from 1; 0 while the kernel starts.
        cells: Code cells that there are.
        heading: The last heading above it.
        seconds: Since the start.
        run: Number of this run, of several.
        runs: How many there are.
    """

    name: str
    cell: int
    cells: int
    heading: str
    seconds: float
    run: int = 1
    runs: int = 1

    @property
    def milestone(self) -> str | None:
        """What a log says: a line for each part of the notebook."""
        return f"{self._name()} · {self.heading}" if self.cell else None

    def _name(self) -> str:
        return self.name if self.runs == 1 else f"run {self.run} of {self.runs} · {self.name}"

    def __str__(self) -> str:
        where = f"cell {self.cell} of {self.cells} · {self.heading}" if self.cell else "its kernel starts"
        return f"{self._name()} · {where} · {lasted(self.seconds)}"


class Execution:
    """One run of one notebook.

    Args:
        source: The notebook.
        target: Where the executed one goes. Its folder, which exists, is the kernel's.
        parameters: Values for its parameters.

    Attributes:
        error: What failed, and in which cell; empty if nothing did.
    """

    def __init__(self, source: Notebook, target: Path, parameters: Mapping[str, Any]) -> None:
        self.error = ""
        self._name = source.name
        self._target = target
        self._content = _parameterised(source, parameters)
        self._cells = [
            cell for cell in self._content.cells if cell.cell_type == "code" and cell.source.strip()
        ]
        self._cell = 0
        self._heading = source.title
        self._begun = 0.0
        # A look at each cell as it begins, so that none is missed.
        self._looks: asyncio.Queue[NotebookProgress] = asyncio.Queue()

    async def progress(self) -> AsyncGenerator[NotebookProgress, None]:
        """Run it to its end or its first failure. Closing this ends the kernel.

        Raises:
            NoSuchKernel: Python has no kernel here.
        """
        from nbclient.exceptions import CellExecutionError, DeadKernelError

        self._begun = time.monotonic()
        task = asyncio.ensure_future(self._client().async_execute())
        try:
            while not (task.done() and self._looks.empty()):
                try:
                    async with asyncio.timeout(_TICK):
                        look = await self._looks.get()
                except TimeoutError:
                    look = self._look()
                yield look
            await task
        except CellExecutionError as failure:
            self.error = f"cell {self._cell}: {failure.ename}: {failure.evalue}"
        except DeadKernelError:
            self.error = f"cell {self._cell}: its kernel died"
        finally:
            await _ended(task)
            self._save()

    def _client(self) -> NotebookClient:
        from nbclient import NotebookClient

        return NotebookClient(
            self._content,
            kernel_name=_KERNEL,
            timeout=None,
            resources={"metadata": {"path": str(self._target.parent.resolve())}},
            # What a cell says is in the notebook; what the kernel's own log says is nothing to act on.
            extra_arguments=["--log-level=CRITICAL"],
            on_cell_start=self._pass,
            on_cell_execute=self._begin,
            on_cell_executed=self._save,
        )

    def _look(self) -> NotebookProgress:
        passed = time.monotonic() - self._begun
        return NotebookProgress(self._name, self._cell, len(self._cells), self._heading, passed)

    def _pass(self, cell: Any, cell_index: int) -> None:  # noqa: ARG002 - nbclient's own names
        """Remember a heading on the way."""
        if cell.cell_type == "markdown":
            self._heading = (headings(cell.source) or [self._heading])[-1]

    def _begin(self, **_: Any) -> None:
        self._cell += 1
        self._looks.put_nowait(self._look())

    def _save(self, **_: Any) -> None:
        import nbformat

        nbformat.write(self._content, self._target)


async def _ended(task: asyncio.Task[Any]) -> None:
    """Wait until a task has ended and cleaned up, whatever comes of it."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()


def _parameterised(source: Notebook, parameters: Mapping[str, Any]) -> Any:
    """The notebook without outputs, with a cell for the parameters behind its own."""
    from papermill.iorw import load_notebook_node
    from papermill.parameterize import parameterize_notebook

    content = load_notebook_node(str(source.path))
    for cell in content.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return parameterize_notebook(content, dict(parameters), kernel_name=_KERNEL) if parameters else content
