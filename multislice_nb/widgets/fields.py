"""The small parts that tabs are made of."""

from __future__ import annotations

import html
from typing import Any

import ipywidgets as widgets

__all__ = ["Field", "button", "code_html", "row", "set_options"]


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


def set_options(choice: Any, options: list[Any]) -> None:
    """Give a choice other options; what was chosen stays chosen where it can."""
    if list(choice.options) == options:
        return
    kept = choice.value
    choice.options = options
    values = [option[1] if isinstance(option, tuple) else option for option in options]
    choice.value = kept if kept in values else (values[0] if values else None)


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
        self._fault = widgets.HTML(layout=widgets.Layout(margin="0 0 0 8px"))
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
