"""What errors say: read from the code, so that one that no test raises is read too."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import NamedTuple

import multislice_nb
from multislice_nb import errors

ROOT = Path(multislice_nb.__file__).parent

CLASSES = {
    name
    for name, value in vars(errors).items()
    if inspect.isclass(value) and issubclass(value, errors.MultisliceError)
}


class Raised(NamedTuple):
    """One place where an error is made."""

    place: str
    what: ast.expr
    fix: ast.expr | None


def raised() -> list[Raised]:
    """Every place where an error of ours is made with its words."""
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            if ast.unparse(node.func).rpartition(".")[2] not in CLASSES:
                continue
            fix = next((keyword.value for keyword in node.keywords if keyword.arg == "fix"), None)
            found.append(Raised(f"{path.relative_to(ROOT)}:{node.lineno}", node.args[0], fix))
    return found


ALL = raised()


def ending(text: ast.expr | None) -> str | None:
    """The last words of a text that are known without running it."""
    if isinstance(text, ast.JoinedStr):
        text = text.values[-1] if text.values else None
    if isinstance(text, ast.Constant) and isinstance(text.value, str):
        return text.value
    return None


def is_sentence(what: ast.expr) -> bool:
    """Whether it begins and ends as one; a text that ends with somebody else's words ends as those do."""
    last = ending(what)
    if last is None:
        return not isinstance(what, ast.Constant)
    if isinstance(what, ast.Constant):
        return last.rstrip().endswith((".", "?")) and (last[0].isupper() or last[0] in "%-`")
    return last.rstrip().endswith((".", "?", ":", ")"))


def test_every_error_says_what_to_do() -> None:
    """What to do next is never left out, and never empty."""
    assert [error.place for error in ALL if error.fix is None or ending(error.fix) == ""] == []


def test_of_several_each_is_told() -> None:
    """What went wrong with each is said, and once what to do; one alone, or what is none of ours, stays as it is."""
    gone, kept = errors.NotFoundError("a is gone.", fix="List."), errors.CloudError("b stays.", fix="List.")
    told = errors.CloudError.of_several("could not be deleted", [gone, kept])
    assert str(told) == "2 could not be deleted:\n  - a is gone.\n  - b stays.\nList."
    assert errors.CloudError.of_several("", [gone]) is gone
    other = ValueError("c")
    assert errors.CloudError.of_several("", [gone, other]) is other


def test_what_happened_is_a_sentence() -> None:
    """Each is written as a sentence, which its class's name is shown before."""
    assert [error.place for error in ALL if not is_sentence(error.what)] == []
