"""The house keeps its order: who may import whom, and what comes only with its first use."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import multislice_nb

ROOT = Path(multislice_nb.__file__).parent

FLOORS = (
    {"errors"},
    {"config", "tpu"},
    {"emulator", "profiles"},
    {"cloud"},
    {"cluster", "sharding"},
    {"jobs", "plotting"},
    {"experiments"},
    {"widgets"},
    {"magics"},
    {"demo", "testing"},
    {"__init__", "__main__"},
)
"""From the ground up; a room imports from floors below its own. Modules with a _ are tools of the ground floor."""

KNOW_THE_EMULATOR = {"cloud/emulation.py", "__main__.py", "demo.py", "testing.py"}
"""The place that starts it; the command line; and what has an emulator of its own."""

HEAVY = {
    "aiohttp", "asyncssh", "google", "grpc", "ipyparallel", "ipywidgets", "jax", "jaxlib", "matplotlib", "numpy",
    "pandas", "papermill", "yaml", "zmq",
}  # fmt: skip
"""What takes long to import; `%load_ext` has to be unnoticed in the start of a kernel."""

FILES = sorted(ROOT.rglob("*.py"))


def name(path: Path) -> str:
    """As in `cloud/client.py`."""
    return path.relative_to(ROOT).as_posix()


def room(path: Path) -> str:
    """The first part of a file's path."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def floor(of: str) -> int:
    """Which floor a room is on."""
    if of.startswith("_") and not of.startswith("__"):
        return 0
    found = [number for number, rooms in enumerate(FLOORS) if of in rooms]
    assert found, f"{of} is no room of the house: give it a floor"
    return found[0]


def imported(path: Path) -> set[str]:
    """The rooms that a file imports from when it runs; imports for types alone are left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            package, _, rest = node.module.partition(".")
            names = [rest] if rest else [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            package, names = "multislice_nb", [a.name.removeprefix("multislice_nb.") for a in node.names]
            names = [n for n, a in zip(names, node.names, strict=True) if n != a.name]
        else:
            continue
        if package == "multislice_nb":
            found |= {
                n.partition(".")[0]
                for n in names
                if (ROOT / n.partition(".")[0]).exists() or (ROOT / f"{n.partition('.')[0]}.py").exists()
            }
    return found


def test_imports_go_down() -> None:
    """A file imports from its own room and from floors below it, and from no other."""
    wrong = {
        (name(path), other)
        for path in FILES
        for other in imported(path) - {room(path)}
        if floor(other) >= floor(room(path))
    }
    assert wrong == set()


def test_one_place_starts_the_emulator() -> None:
    """Whatever drives slices cannot tell the emulator from Google Cloud, since it cannot import it."""
    knowing = {name(path) for path in FILES if room(path) != "emulator" and "emulator" in imported(path)}
    assert knowing == KNOW_THE_EMULATOR


def test_files_are_small() -> None:
    """One idea a file: none is longer than 400 lines."""
    assert [name(path) for path in FILES if len(path.read_text(encoding="utf-8").splitlines()) > 400] == []


def test_no_module_takes_a_public_name() -> None:
    """A name that comes with its first use has no module beside it, whose import would put itself in its place."""
    taken = set()
    for path in FILES:
        if path.name == "__init__.py":
            package = ".".join(path.parent.relative_to(ROOT.parent).parts)
            homes = getattr(importlib.import_module(package), "_HOMES", {})
            others = {each.stem for each in path.parent.iterdir()}
            taken |= {f"{package}.{name}" for name in others & set(homes) if homes[name] != (name, "")}
    assert taken == set()


def test_waits_with_a_limit_can_be_cancelled() -> None:
    """`asyncio.timeout` is used and not `wait_for`, which on Python 3.11 can swallow a cancellation."""
    assert [name(path) for path in FILES if "asyncio.wait_for(" in path.read_text(encoding="utf-8")] == []


def heavy_after(code: str, before: str = "") -> set[str]:
    """Which heavy packages some code brings in, in a fresh interpreter that has run other code before."""
    script = f"import sys\n{before}\nold = set(sys.modules)\n{code}\nprint(*sorted(set(sys.modules) - old))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return {module.partition(".")[0] for module in done.stdout.splitlines()[-1].split()} & HEAVY


ROOMS = ("cloud", "cluster", "errors", "experiments", "jobs", "plotting", "profiles", "sharding", "tpu")


def test_importing_costs_next_to_nothing() -> None:
    """The package and its public rooms import nothing heavy; that comes with the first use of a name."""
    assert heavy_after("\n".join(f"import multislice_nb.{room}" for room in ROOMS)) == set()


LOADED = """
shell.run_line_magic("load_ext", "multislice_nb")
shell.run_line_magic("multislice", "--help")
shell.run_line_magic("multislice", "create --help")
shell.run_line_magic("multislice", "status")
shell.complete("%multislice create x --zone ")
"""


def test_loading_the_extension_costs_next_to_nothing() -> None:
    """`%load_ext multislice_nb`, help, status and completion import nothing heavy that IPython has not."""
    shell = "from IPython.core.interactiveshell import InteractiveShell\nshell = InteractiveShell.instance()"
    assert heavy_after(LOADED, shell) == set()
