"""`%multislice` and `%%multislice`: parse, call, display."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.core.magic import Magics, line_cell_magic, magics_class
from traitlets import Enum, Float

from multislice_nb.magics import parser
from multislice_nb.magics.actions import Actions
from multislice_nb.magics.autocell import Autocell
from multislice_nb.magics.cells import run_cell, variable_name
from multislice_nb.magics.grammar import CELL
from multislice_nb.magics.live import Line
from multislice_nb.magics.reference import command_help, overview
from multislice_nb.widgets.watched import is_watched

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["MultisliceMagics"]


@magics_class
class MultisliceMagics(Magics):
    """What `%config MultisliceMagics` shows and sets."""

    progress = Enum(
        ["auto", "live", "lines"],
        "auto",
        help="How long calls show progress: live updates one output, lines prints each step, auto decides by whether somebody watches",
    ).tag(config=True)
    group_outputs = Enum(["type", "engine"], "type", help="Default of --group-outputs of %%multislice").tag(
        config=True
    )
    timeout = Float(
        None, allow_none=True, help="Default of --timeout of %%multislice, in seconds; None for no limit"
    ).tag(config=True)

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self._shell = shell
        self.autocell = Autocell(shell)
        self.actions = Actions(lambda: Line(watched=self.watched), shell.user_ns, self.autocell)

    @property
    def watched(self) -> bool:
        """Whether outputs are updated in place."""
        return is_watched(self._shell) if self.progress == "auto" else self.progress == "live"

    @line_cell_magic
    def multislice(self, line: str, cell: str | None = None) -> Any:
        """The overview stands here, for `%multislice?`."""
        if cell is not None:
            return self._cell(line, cell)
        call = parser.parse(line)
        if call.command is None:
            return overview()
        if call.help:
            return command_help(call.command)
        return getattr(self.actions, call.command.name)(**call.values)

    def _cell(self, line: str, cell: str) -> Any:
        call = parser.parse_cell(line)
        if call.help:
            return command_help(CELL)
        options = call.values
        output = variable_name(options.pop("output")) if "output" in options else None
        cluster = self.actions.session.cluster(options.pop("cluster", None))
        if self.autocell.on:
            print(self.autocell.banner(cluster.name, len(cluster.workers)))
        defaults = {"group_outputs": self.group_outputs, "timeout": self.timeout}
        result = run_cell(cluster, cell, watched=self.watched, show=output is None, **defaults | options)
        if output is not None:
            self._shell.user_ns[output] = result
        result.raise_for_error()
        return None

    multislice.__doc__ = str(overview())
