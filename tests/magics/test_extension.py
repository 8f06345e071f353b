from __future__ import annotations

import subprocess
import sys

HEAVY = (
    "jax",
    "grpc",
    "pandas",
    "matplotlib",
    "asyncssh",
    "ipywidgets",
    "ipyparallel",
    "aiohttp",
    "numpy",
    "papermill",
)

PROBE = f"""
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
before = set(sys.modules)
shell.run_line_magic("load_ext", "multislice_nb")
shell.run_line_magic("multislice", "--help")
shell.run_line_magic("multislice", "status")
shell.complete("%multislice create x --zone ")
print(*sorted(name for name in set(sys.modules) - before if name.split(".")[0] in {HEAVY!r}))
"""


def test_loading_imports_nothing_heavy() -> None:
    """`%load_ext multislice_nb`, help, status and completion import none of the heavy libraries."""
    run = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1].strip() == ""


LOADING = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
def parts():
    return (
        sorted(shell.magics_manager.magics["line"]), sorted(shell.magics_manager.magics["cell"]),
        len(shell.configurables), len(shell.Completer.custom_matchers), len(shell.input_transformers_cleanup),
        sorted(map(str, shell.display_formatter.formatters["text/plain"].deferred_printers)),
    )
shell.run_line_magic("load_ext", "autoreload")  # brings the shell's own lazy parts with it
before = parts()
shell.run_line_magic("load_ext", "multislice_nb.magics")
loaded = parts()
assert loaded != before
shell.run_line_magic("reload_ext", "multislice_nb.magics")
assert parts() == loaded
shell.run_line_magic("unload_ext", "multislice_nb.magics")
assert parts() == before, (parts(), before)
print("fine")
"""


def test_unloading_takes_back_what_loading_did() -> None:
    """Reloading doubles nothing, and unloading leaves the shell as it was."""
    run = subprocess.run([sys.executable, "-c", LOADING], capture_output=True, text=True, check=False)
    assert run.stdout.splitlines()[-1:] == ["fine"], run.stdout + run.stderr
