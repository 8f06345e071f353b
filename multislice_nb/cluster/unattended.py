"""Where an engine must differ from a kernel: nobody sits before it, and no cell may end it. Runs on the workers."""

from __future__ import annotations

import builtins
import getpass
import os
import signal
import sys
import tokenize
import warnings
from typing import Any, NoReturn

from multislice_nb.cluster.awaiting import CellLoop

__all__ = ["ends_in_semicolon", "explain", "prepare_process", "prepare_shell"]

_MISLEADING = (
    # How else to leave a notebook's kernel.
    (UserWarning, "To exit: use", ""),
    # JAX's, at `!command`: it forks only to start a program.
    (RuntimeWarning, r"os\.fork\(\) was called", "pty"),
    # tqdm's, before it draws its bar as text.
    (Warning, "IProgress not found", ""),
)


def prepare_process() -> None:
    """Have what waits for a person say that there is none."""
    builtins.input = getpass.getpass = _nobody_answers
    sys.breakpointhook = _no_debugger
    sys.modules["ipywidgets"] = None  # type: ignore[assignment]  # as if it were not installed: bars are drawn as text
    # Children that a cell forks end at SIGTERM, as pools and data loaders ask of theirs. The handlers that they
    # inherit, ipyparallel's and JAX's, only note it; held back meanwhile, none comes too early.
    os.register_at_fork(
        before=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM}),
        after_in_parent=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM}),
        after_in_child=_end_at_sigterm,
    )
    for category, message, module in _MISLEADING:
        warnings.filterwarnings("ignore", message, category, module)


def prepare_shell(shell: Any) -> None:
    """Make a shell fit for cells that run on many workers at once."""
    shell.loop_runner = CellLoop()
    shell.ask_exit = _leave  # `exit()` would end the engine
    shell.set_hook("show_in_pager", _print_page, 0)  # `name?`: pages would go to a frontend


def explain(error: BaseException) -> None:
    """Add to an error what it does not say by itself."""
    if isinstance(error, ModuleNotFoundError) and error.name == "ipywidgets":
        error.add_note(
            "A widget made on a worker cannot be shown: make it in the notebook, from what workers return."
        )


def ends_in_semicolon(code: str) -> bool:
    """Whether a cell's last expression is not to be shown, as IPython has it."""
    from IPython.core.displayhook import DisplayHook

    try:
        return bool(DisplayHook.semicolon_at_end_of_expression(code))
    except (tokenize.TokenError, SyntaxError):  # magics are no Python
        return False


def _end_at_sigterm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _leave(*_: Any) -> NoReturn:
    raise SystemExit


def _print_page(_shell: Any, data: Any, *_: Any, **__: Any) -> None:
    print(data["text/plain"] if isinstance(data, dict) else data)


def _nobody_answers(prompt: object = "", *_: Any, **__: Any) -> NoReturn:
    from IPython.core.error import StdinNotImplementedError

    raise StdinNotImplementedError(
        f"nobody sits at a worker to answer {str(prompt).strip() or 'this'!r}. Ask in the notebook, and hand the "
        "answer over: in the cell, in a file (%multislice push), or in a variable (%multislice environment set)."
    )


def _no_debugger(*_: Any, **__: Any) -> NoReturn:
    raise RuntimeError(
        "nobody sits at a worker to debug: print what you look for, or run the cell in the notebook too with "
        "%%multislice --local."
    )
