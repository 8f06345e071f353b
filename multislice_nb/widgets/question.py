"""A question before something is ended for good, made once there is something to end."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from multislice_nb.widgets.fields import button

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Question"]


class Question:
    """What dies, a button that lets it, and one that does not, which has the focus.

    Args:
        icon: Of the first button.
        keep: Words of the second.
        tips: What each of them does.
        yes: Called when the first is pressed.
    """

    def __init__(self, icon: str, keep: str, tips: tuple[str, str], yes: Callable[[], None]) -> None:
        self._icon, self._stay, self._tips, self._yes = icon, keep, tips, yes
        self._text: Any = None
        self.confirm: Any = None
        self.keep: Any = None
        self.view = widgets.VBox(layout=widgets.Layout(display="none"))

    def ask(self, text: str, confirm: str) -> None:
        """Ask.

        Args:
            text: The question.
            confirm: Words of the first button.
        """
        self.allow(True)
        self._text.value = f'<div class="msnb" role="alert">{html.escape(text)}</div>'
        self.confirm.description = confirm
        self.view.layout.display = None
        self.keep.focus()

    def hide(self) -> None:
        """Take it away, unanswered or not."""
        self.view.layout.display = "none"

    def allow(self, allowed: bool) -> None:
        """Whether there is something to end.

        The buttons are made then, not when it is asked: only what is on the page already can take the focus.
        """
        if allowed and self._text is None:
            self._make()
        if self._text is not None:
            self.confirm.disabled = not allowed

    def _make(self) -> None:
        self._text = widgets.HTML()
        self.confirm = button("", self._icon, self._tips[0], "danger")
        self.keep = button(self._stay, "", self._tips[1])
        self.confirm.on_click(lambda _: self._yes())
        self.keep.on_click(lambda _: self.hide())
        self.view.children = [self._text, widgets.HBox([self.confirm, self.keep])]
