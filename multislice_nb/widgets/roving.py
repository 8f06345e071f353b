"""Keys for the grid of workers: it is one stop of the Tab key, and arrows, Home and End go about in it.

Core widgets have no such thing, so that a script of a few lines gives it to the buttons that are there. It comes in
an Output widget, which front ends run it from; where one does not, each button is a stop of its own, as before.
"""

from __future__ import annotations

from typing import Any

import ipywidgets as widgets

__all__ = ["roving"]

_SCRIPT = """
(() => {
  const give = (view) => {
    const group = view.querySelector(":scope > div");
    if (!group || group.dataset.msnbRoving) return;
    group.dataset.msnbRoving = "true";
    group.dataset.lmSuppressShortcuts = "true";  // JupyterLab's own keys would move between cells
    group.setAttribute("role", "toolbar");
    group.setAttribute("aria-label", "Workers by rank");
    let at = 0;
    const settle = () => {
      const all = [...group.children];
      const chosen = all.findIndex((one) => one.classList.contains("mod-active"));
      const focused = all.indexOf(document.activeElement);
      at = Math.max(0, focused >= 0 ? focused : chosen);
      all.forEach((one, rank) => {
        one.tabIndex = rank === at ? 0 : -1;
        one.setAttribute("aria-pressed", rank === chosen);
      });
    };
    group.addEventListener("focusin", settle);
    group.addEventListener("keydown", (event) => {
      const last = group.children.length - 1;
      const columns = getComputedStyle(group).gridTemplateColumns.split(" ").length;
      const first = at - (at % columns);
      const to = {
        ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: at + columns, ArrowUp: at - columns,
        Home: event.ctrlKey ? 0 : first, End: event.ctrlKey ? last : Math.min(first + columns - 1, last),
      }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      event.stopPropagation();
      if (group.children[to]) group.children[to].focus();
    });
    new MutationObserver(settle).observe(group, { childList: true, subtree: true, attributeFilter: ["class"] });
    settle();
  };
  let tries = 100;  // the buttons may be put on the page after this
  const look = () => {
    const views = document.querySelectorAll(".SCOPE");
    views.forEach(give);
    if (!views.length && tries--) setTimeout(look, 100);
  };
  look();
})();
"""


def roving(scope: str) -> Any:
    """The widget that brings the keys.

    Args:
        scope: The class of the set of buttons.
    """
    script = {"application/javascript": _SCRIPT.replace("SCOPE", scope)}
    output = {"output_type": "display_data", "data": script, "metadata": {}}
    return widgets.Output(outputs=(output,), layout=widgets.Layout(display="none"))
