"""What the subcommands share: the session, the output of a long call, the user's variables."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, TypeVar

from multislice_nb._texts import lasted
from multislice_nb.magics.cells import show_result, variable_name
from multislice_nb.magics.following import Look, follow
from multislice_nb.widgets.session import current

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, MutableMapping

    from multislice_nb._live import Line
    from multislice_nb.cluster import CellResult
    from multislice_nb.magics.autocell import Autocell
    from multislice_nb.sharding import Plans
    from multislice_nb.widgets.session import Session

__all__ = ["Base", "literal", "literals"]

T = TypeVar("T")


class Base:
    """What each group of subcommands builds on.

    Args:
        line: Makes the output that a long call updates.
        variables: The user's namespace, for results by name.
        autocell: The mode in which every cell runs on the workers; None where there are no cells.
        session: What the panel shares with them; this process's own if None.
    """

    def __init__(
        self,
        line: Callable[[], Line],
        variables: MutableMapping[str, Any],
        autocell: Autocell | None = None,
        session: Session | None = None,
    ) -> None:
        self.session = session or current()
        self._line = line
        self._variables = variables
        self._autocell = autocell
        self._plans: Plans | None = None

    def _follow(self, doing: str, start: Callable[[Callable[[str], None]], Coroutine[Any, Any, T]]) -> T:
        line = self._line()

        def show(look: Look[T]) -> None:
            line.show(f"{doing} · {lasted(look.seconds)}", step=doing)

        found = follow(start, show)
        line.end()
        return found

    def _keep(self, name: str, value: object) -> None:
        self._variables[variable_name(name)] = value

    def _finish(self, result: CellResult, line: Line, output: str | None) -> None:
        """Show a result or keep it in a variable, then raise its failure."""
        if output is None:
            show_result(result, line)
        else:
            self._keep(output, result)
        result.raise_for_error()


def literal(text: str) -> Any:
    """A parameter as Python writes it: a number, a truth value, a list; anything else is text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def literals(text: str) -> list[Any]:
    """Several parameters with commas between them."""
    whole = literal(text)
    if isinstance(whole, (list, tuple)):
        return list(whole)
    if whole != text:
        return [whole]
    return [literal(word.strip()) for word in text.split(",") if word.strip()]
