"""`%multislice` and `%%multislice`: parse, call, display.

The grammar and what it calls come with the first line that is run or asked about: loading the extension must not
be felt at the start of a kernel.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from IPython.core.magic import Magics, line_cell_magic, magics_class, no_var_expand
from traitlets import Enum, Float

from multislice_nb._watched import is_watched
from multislice_nb.errors import MagicError
from multislice_nb.magics.autocell import Autocell

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from multislice_nb.cluster import CellHandle, Cluster
    from multislice_nb.magics.actions import Actions
    from multislice_nb.magics.parser import Call

__all__ = ["MultisliceMagics"]

_CALLER = 2
"""Frames from the magic to whose variables its line means: IPython's `run_line_magic` is between them."""


def _overview() -> str:
    """What `%multislice?` shows."""
    from multislice_nb.magics.reference import overview

    return str(overview())


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

    @cached_property
    def actions(self) -> Actions:
        """What the subcommands call."""
        from multislice_nb._live import Line
        from multislice_nb.magics.actions import Actions

        return Actions(lambda: Line(watched=self.watched), self._shell.user_ns, self.autocell)

    @property
    def watched(self) -> bool:
        """Whether outputs are updated in place."""
        return is_watched(self._shell) if self.progress == "auto" else self.progress == "live"

    # It expands its line itself: in a pasted command `${ZONE}` is the shell's notation, not IPython's.
    @no_var_expand
    @line_cell_magic
    def multislice(self, line: str, cell: str | None = None) -> Any:
        """Ask for Cloud TPU slices, watch them, and run cells on all their workers; `%multislice?` shows all of it."""
        from multislice_nb.magics import parser
        from multislice_nb.magics.filled import filled
        from multislice_nb.magics.reference import command_help, overview

        if not parser.is_pasted(line):
            line = filled(self._shell, line, _CALLER, strict=not parser.is_shell(line))
        if cell is not None:
            return self._cell(line, cell)
        call = parser.parse(line)
        if call.command is None:
            return overview(call.group)
        return command_help(call.command) if call.help else self._act(call)

    # IPython asks an object for its own text first, and only when somebody asks.
    multislice.getdoc = _overview  # type: ignore[union-attr]

    def _act(self, call: Call) -> Any:
        if call.command is None:
            return None
        try:
            return getattr(self.actions, call.command.method)(**call.values)
        except KeyboardInterrupt as stop:
            from multislice_nb.magics.cells import of_a_line

            raise of_a_line(stop, call.command) from None

    def _cell(self, line: str, cell: str) -> Any:
        from multislice_nb.magics import parser
        from multislice_nb.magics.grammar import CELL
        from multislice_nb.magics.mistakes import nothing_to_run
        from multislice_nb.magics.reference import command_help

        call = parser.parse_cell(line, cell)
        if call.help and call.command is not None:
            return command_help(call.command)
        if call.command is not CELL:
            return self._act(call)
        if not cell.strip():
            raise nothing_to_run()
        return self._run(call.values, cell)

    def _run(self, options: dict[str, Any], cell: str) -> CellHandle | None:
        """A cell on the workers."""
        from multislice_nb.magics.cells import run_cell, show_failure, told_where_it_is, variable_name

        noblock, local = options.pop("noblock", False), options.pop("local", False)
        no_raise = options.pop("no_raise", False)
        options.pop("block", None)
        wanted, folder = options.pop("profile", False), options.pop("profile_folder", None)
        if folder is not None and not wanted:
            raise MagicError("--profile-folder says nothing without --profile.", fix="Add --profile.")
        options["profile"] = folder or wanted
        if noblock and no_raise:
            raise MagicError(
                "--no-raise says nothing with --noblock.", fix="Ask the handle: handle.result(check=False)."
            )
        output = variable_name(options.pop("output")) if "output" in options else None
        cluster = self.actions.session.cluster(options.pop("cluster", None))
        options["name"] = self._cell_name()
        if self.autocell.on:
            print(self.autocell.banner(cluster.name, len(cluster.workers)))
        if local:
            self._run_here(cell)
        defaults = {"group_outputs": self.group_outputs, "timeout": self.timeout}
        if noblock:
            return self._submit(cluster, cell, {"timeout": self.timeout, **options}, output)
        result = run_cell(cluster, cell, watched=self.watched, show=output is None, **defaults | options)
        if output is not None:
            self._shell.user_ns[output] = result
        if not no_raise:
            with told_where_it_is(self._shell.user_ns):
                result.raise_for_error()
        elif output is None:
            show_failure(result)
        return None

    def _cell_name(self) -> str | None:
        """What tracebacks call it: the number that the notebook shows beside it."""
        # The shell's own count is that of the next cell by now, or not yet, by IPython's version.
        number = getattr(self._shell.displayhook.exec_result, "execution_count", None)
        return None if number is None else f"<cell {number}>"

    def _submit(
        self, cluster: Cluster, cell: str, options: dict[str, Any], output: str | None
    ) -> CellHandle | None:
        from multislice_nb.magics.cells import plain_warnings

        options.pop("group_outputs", None)  # nothing is shown yet; a handle's result says who printed what
        with plain_warnings():
            handle = cluster.submit(cell, **options)
        if output is None:
            return handle
        self._shell.user_ns[output] = handle
        return None

    def _run_here(self, cell: str) -> None:
        """Run a cell in this kernel before its workers get it.

        Raises:
            MagicError: It failed, after its traceback was shown.
        """
        with self.autocell.paused():
            done = self._shell.run_cell(cell, store_history=False)
        if not done.success:
            error = done.error_in_exec or done.error_before_exec
            raise MagicError(
                f"The cell failed here: {type(error).__name__}: {error}",
                fix="Mend it; nothing was run on the workers.",
            )
