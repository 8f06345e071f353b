"""What the subcommands share: the session, the output of a long call, the user's variables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from multislice_nb.magics.following import Look, follow
from multislice_nb.magics.views import lasted
from multislice_nb.widgets.session import current

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from multislice_nb.magics.autocell import Autocell
    from multislice_nb.magics.live import Line

__all__ = ["Base"]


class Base:
    """What each group of subcommands builds on.

    Args:
        line: Makes the output that a long call updates.
        variables: The user's namespace, for results by name.
        autocell: The mode in which every cell runs on the workers.
    """

    def __init__(self, line: Callable[[], Line], variables: Mapping[str, Any], autocell: Autocell) -> None:
        self.session = current()
        self._line = line
        self._variables = variables
        self._autocell = autocell

    def _follow(self, doing: str, start: Callable[[Callable[[str], None]], Any]) -> None:
        line = self._line()

        def show(look: Look[None]) -> None:
            line.show(f"{doing} · {lasted(look.seconds)}", step=doing)

        follow(start, show)
        line.end()
