"""The control panel: one object with a widget, an HTML and a text form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from multislice_nb._portal import sync
from multislice_nb.widgets.poller import poller_of
from multislice_nb.widgets.session import current
from multislice_nb.widgets.snapshot import Snapshot, take
from multislice_nb.widgets.tables import static_html, static_text

if TYPE_CHECKING:
    from multislice_nb.widgets.board import Board
    from multislice_nb.widgets.session import Session

__all__ = ["Panel", "panel"]

_UNSEEN = "What there is was not known yet when the panel was opened; %multislice list shows it."
"""What stands in its place in a saved notebook."""


class Panel:
    """A view of what there is; buttons for what can be done.

    Where nobody can press a button (a terminal, nbconvert, papermill, no ipywidgets) it is a table.

    Args:
        session: What it shows.
        live: Whether there is a page with somebody before it.
    """

    def __init__(self, session: Session, *, live: bool) -> None:
        self._session = session
        self.board: Board | None = _board(session) if live else None

    @property
    def snapshot(self) -> Snapshot:
        """What is shown; looked at now when no open panel keeps it fresh."""
        last = poller_of(self._session).last
        if self.board is not None:
            connection = str(self._session.cloud or "").partition("\n")[0]
            return last or Snapshot(connection=connection, problem=_UNSEEN if connection else "")
        return sync(take, self._session)

    def close(self) -> None:
        """Take it off the page."""
        if self.board is not None:
            self.board.close()

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self._repr_mimebundle_(), raw=True)
        if self.board is not None:
            # A place in the same cell for charts that are to be saved with the notebook.
            self.board.below = display({"text/plain": ""}, raw=True, display_id=True)

    def __str__(self) -> str:
        return static_text(self.snapshot)

    def __repr__(self) -> str:
        return "<Panel>"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        snapshot = self.snapshot
        forms: dict[str, Any] = {"text/plain": static_text(snapshot), "text/html": static_html(snapshot)}
        if self.board is not None:
            forms |= self.board.mimebundle()
        return forms


def panel(session: Session | None = None, *, live: bool | None = None) -> Panel:
    """Open the control panel.

    Args:
        session: What to show; what the magics of this notebook have at hand when None.
        live: Whether to make widgets; when None, only where somebody is there to use them.
    """
    return Panel(session or current(), live=_is_watched() if live is None else live)


def _is_watched() -> bool:
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    from multislice_nb._watched import is_watched

    return is_watched(get_ipython())


def _board(session: Session) -> Board | None:
    try:
        from multislice_nb.widgets.board import Board
    except ModuleNotFoundError as error:
        if error.name != "ipywidgets":
            raise
        return None
    return Board(session)
