"""The small parts that tabs are made of."""

from __future__ import annotations

import html
from typing import Any

import ipywidgets as widgets
from traitlets import Bunch

__all__ = ["Choice", "Field", "button", "code_html", "row"]


def row() -> widgets.Layout:
    """A layout of its own for each row: hiding one must not hide another."""
    return widgets.Layout(align_items="center", flex_flow="row wrap", margin="4px 0", grid_gap="4px 6px")


def button(text: str, icon: str, tip: str, style: str = "") -> widgets.Button:
    """A button as wide as its words."""
    return widgets.Button(
        description=text, icon=icon, tooltip=tip, button_style=style, layout=widgets.Layout(width="auto")
    )


def code_html(text: str, label: str) -> str:
    """Code to read and copy."""
    return (
        f'<div class="msnb"><div class="msnb-code" role="textbox" aria-readonly="true" tabindex="0" '
        f'aria-label="{html.escape(label)}">{html.escape(text)}</div></div>'
    )


class Choice(widgets.Dropdown):  # type: ignore[misc]  # ipywidgets ships no types
    """A dropdown that is given other options while somebody uses it."""

    _offering = False

    def offer(self, options: list[Any]) -> None:
        """Give it other options; what was chosen stays chosen where it can, and nobody is told of a change then."""
        if list(self.options) == options:
            return
        kept = self.value
        values = [option[1] if isinstance(option, tuple) else option for option in options]
        self._offering = True
        try:
            with self.hold_sync():
                self.set_trait("options", options)  # which chooses the first one
                self.index = values.index(kept) if kept in values else (0 if values else None)
        finally:
            self._offering = False
        if self.value != kept:
            self.notify_change(Bunch(name="value", old=kept, new=self.value, owner=self, type="change"))

    def notify_change(self, change: Any) -> None:
        """Tell of a change, but of none in between."""
        if not (self._offering and change["name"] == "value"):
            super().notify_change(change)


class Field:
    """A widget with its label before it and its fault beside it.

    Args:
        label: What it is.
        control: The widget; its own description is set, which screen readers read.
    """

    def __init__(self, label: str, control: Any) -> None:
        control.description = label
        control.style.description_width = "150px"
        control.layout.width = control.layout.width or "440px"
        self.control = control
        self._fault = widgets.HTML(layout=widgets.Layout(margin="0 0 0 8px", flex="1 1 300px", min_width="0"))
        self.view = widgets.HBox([control, self._fault], layout=row())

    @property
    def value(self) -> Any:
        """What is in it."""
        return self.control.value

    def fault(self, text: str, hint: str = "") -> None:
        """Say what is wrong with it, or else what is worth knowing; nothing when both are empty."""
        shown = f'<div class="msnb msnb-muted" role="status">{html.escape(hint)}</div>' if hint else ""
        if text:
            shown = f'<div class="msnb msnb-fault" role="alert">{html.escape(text)}</div>'
        if self._fault.value != shown:
            self._fault.value = shown
