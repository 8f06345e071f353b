"""How panels look: JupyterLab's own variables, with fallbacks for front ends that have none.

A state is a word, a colour and a shape, so that none of them is needed to tell it.
"""

from __future__ import annotations

import html
from dataclasses import dataclass

__all__ = ["CSS", "Look", "look_of", "state_html", "state_mark"]


@dataclass(frozen=True, slots=True)
class Look:
    """How a state is drawn.

    Attributes:
        tone: A colour by its meaning.
        shape: What stands before the word, drawn.
        mark: The same as a character.
    """

    tone: str
    shape: str
    mark: str


_CIRCLE = '<circle cx="6" cy="6" r="4.6" fill="currentColor"/>'
_RING = '<circle cx="6" cy="6" r="4.2" fill="none" stroke="currentColor" stroke-width="1.6"/>'
_HALF = _RING + '<path d="M6 1.8 A4.2 4.2 0 0 1 6 10.2 Z" fill="currentColor"/>'
_QUARTER = _RING + '<path d="M6 6 V1.8 A4.2 4.2 0 0 1 10.2 6 Z" fill="currentColor"/>'
_CROSS = '<path d="M2.2 2.2 L9.8 9.8 M9.8 2.2 L2.2 9.8" stroke="currentColor" stroke-width="2.2"/>'
_TRIANGLE = '<path d="M6 1.2 L11 10.6 H1 Z" fill="currentColor"/>'
_DASHED = '<circle cx="6" cy="6" r="4.2" fill="none" stroke="currentColor" stroke-width="1.6" stroke-dasharray="2 1.8"/>'

_WAITING = Look("waiting", _QUARTER, "◔")
_BUSY = Look("busy", _HALF, "◐")
_GOOD = Look("good", _CIRCLE, "●")
_BAD = Look("bad", _CROSS, "✕")
_STOPPED = Look("warning", _TRIANGLE, "▲")
_LEAVING = Look("leaving", _DASHED, "◌")
_UNKNOWN = Look("leaving", _RING, "○")

_LOOKS = {
    # Queued resources.
    "CREATING": _WAITING,
    "ACCEPTED": _WAITING,
    "WAITING_FOR_RESOURCES": _WAITING,
    "PROVISIONING": _BUSY,
    "ACTIVE": _GOOD,
    "FAILED": _BAD,
    "SUSPENDING": _STOPPED,
    "SUSPENDED": _STOPPED,
    "DELETING": _LEAVING,
    # Nodes.
    "READY": _GOOD,
    "RESTARTING": _BUSY,
    "REIMAGING": _BUSY,
    "REPAIRING": _BUSY,
    "STARTING": _BUSY,
    "STOPPING": _STOPPED,
    "STOPPED": _STOPPED,
    "PREEMPTED": _BAD,
    "TERMINATED": _BAD,
    # Workers.
    "ready": _GOOD,
    "running": _BUSY,
    "behind": _STOPPED,
    "lost": _BAD,
    "detached": _UNKNOWN,
    # Jobs.
    "queued": _WAITING,
    "starting": _BUSY,
    "repairing": _BUSY,
    "succeeded": _GOOD,
    "failed": _BAD,
    "timed out": _BAD,
    "cancelled": _STOPPED,
}


def look_of(state: str) -> Look:
    """How a state is drawn; an unknown one as a ring."""
    return _LOOKS.get(state, _UNKNOWN)


def state_html(state: str, *, title: str = "") -> str:
    """A state as shape and word."""
    look = look_of(state)
    tip = f' title="{html.escape(title)}"' if title else ""
    return (
        f'<span class="msnb-state"{tip}><svg class="msnb-{look.tone}" viewBox="0 0 12 12" width="11" height="11" '
        f'aria-hidden="true">{look.shape}</svg>{html.escape(state)}</span>'
    )


def state_mark(state: str) -> str:
    """A state as character and word."""
    return f"{look_of(state).mark} {state}"


CSS = """<style>
.msnb, .msnb-workers { --msnb-good: var(--jp-success-color1, #2e7d32); --msnb-bad: var(--jp-error-color1, #d32f2f);
  --msnb-warning: var(--jp-warn-color1, #e65100); --msnb-waiting: var(--jp-warn-color0, #b26a00);
  --msnb-busy: var(--jp-brand-color1, #1976d2); --msnb-leaving: var(--jp-ui-font-color3, #808080); }
.msnb { color: var(--jp-ui-font-color1, inherit); font-family: var(--jp-ui-font-family, system-ui, sans-serif);
  font-size: var(--jp-ui-font-size1, 13px); line-height: 1.45; }
.msnb-panel { border: 1px solid var(--jp-border-color2, rgba(128,128,128,.35)); border-radius: 3px;
  background: var(--jp-layout-color1, transparent); max-width: 1080px; }
.msnb p { margin: 0; }
.msnb-muted { color: var(--jp-ui-font-color2, inherit); }
.msnb-head { display: flex; justify-content: space-between; gap: 12px; padding: 4px 2px; }
.msnb-head b { font-weight: 600; }
.msnb-scroll { overflow: auto; max-height: 360px; }
.msnb table.msnb-table { border-collapse: collapse; table-layout: auto; width: 100%; margin: 0; font-size: inherit; }
.msnb .msnb-table th, .msnb .msnb-table td { text-align: left; max-width: 320px; overflow: hidden; text-overflow: ellipsis; padding: 4px 14px 4px 2px; white-space: nowrap;
  border-bottom: 1px solid rgba(128,128,128,.25); vertical-align: top; }
.msnb .msnb-table th { font-weight: 600; color: var(--jp-ui-font-color2, inherit);
  border-bottom-color: var(--jp-border-color1, rgba(128,128,128,.5));
  position: sticky; top: 0; background: var(--jp-layout-color1, Canvas); }
.msnb .msnb-table td.msnb-number, .msnb .msnb-table th.msnb-number { text-align: right; font-variant-numeric: tabular-nums; }
.msnb .msnb-table td.msnb-wide { white-space: normal; min-width: 180px; }
.msnb-table tr.msnb-chosen td { background: var(--jp-layout-color2, rgba(128,128,128,.12)); }
.msnb-state { display: inline-flex; align-items: center; gap: 6px; white-space: nowrap; }
.msnb-state svg { flex: none; }
.msnb .msnb-line { display: flex; flex-wrap: wrap; align-items: center; gap: 2px 8px; }
.msnb-good { color: var(--msnb-good); } .msnb-bad { color: var(--msnb-bad); } .msnb-warning { color: var(--msnb-warning); }
.msnb-waiting { color: var(--msnb-waiting); } .msnb-busy { color: var(--msnb-busy); } .msnb-leaving { color: var(--msnb-leaving); }
.msnb-code { font-family: var(--jp-code-font-family, monospace); font-size: var(--jp-code-font-size, 13px);
  background: var(--jp-layout-color2, rgba(128,128,128,.12)); border-radius: 2px; padding: 6px 8px; margin: 2px 0;
  white-space: pre-wrap; overflow-wrap: anywhere; color: var(--jp-content-font-color1, inherit); }
.msnb-log { max-height: 260px; overflow: auto; white-space: pre-wrap; }
code.msnb-code { padding: 1px 5px; }
.msnb-notes { padding: 6px 4px 0; min-height: 22px; }
.msnb-notes div { margin: 2px 0; }
.msnb-fault { color: var(--jp-error-color1, #d32f2f); }
.msnb-facts { font-weight: 600; }
.msnb-grid { display: flex; flex-direction: column; gap: 3px; }
.msnb-slice { display: flex; align-items: center; gap: 8px; }
.msnb-slice > span { min-width: 150px; font-variant-numeric: tabular-nums; white-space: nowrap; color: var(--jp-ui-font-color2, inherit); }
.msnb-cells { display: flex; flex-wrap: wrap; gap: 2px; }
.msnb-cells svg { display: block; }
.msnb-path > span { display: inline-flex; align-items: center; gap: 6px; }
.msnb-path { display: flex; flex-wrap: wrap; align-items: center; gap: 4px 12px; margin: 6px 0 2px; }
.msnb-path > span.msnb-flat { margin: 0; gap: 4px 12px; }
.msnb-count { margin-left: 4px; }
.msnb-ink { stroke: var(--jp-ui-font-color1, currentColor); }
.msnb-inktext { fill: var(--jp-ui-font-color1, currentColor); }
.msnb-editor textarea { font-family: var(--jp-code-font-family, monospace); font-size: var(--jp-code-font-size, 13px); }
.msnb-empty { padding: 18px 4px; color: var(--jp-ui-font-color2, inherit); }
.msnb-flow { flex-flow: row wrap; gap: 3px 14px; } .msnb-flow .msnb-slice > span { min-width: 118px; }
.msnb-title { font-weight: 600; margin: 8px 0 2px; }
.msnb-bar { display: inline-block; width: 64px; height: 6px; margin-right: 6px; border-radius: 3px; vertical-align: middle;
  background: var(--jp-layout-color3, rgba(128,128,128,.3)); overflow: hidden; }
.msnb-bar i { display: block; height: 100%; background: var(--jp-brand-color1, #1976d2); }
.msnb-said { font-family: var(--jp-code-font-family, monospace); font-size: var(--jp-code-font-size, 13px); }
.msnb-rows { display: grid; position: relative; top: -2px; margin-right: 10px; white-space: nowrap; font-variant-numeric: tabular-nums; overflow: visible;
  color: var(--jp-ui-font-color2, inherit); }
.msnb-workers .jupyter-button { position: relative; scroll-margin: 4px; width: auto; min-width: 0; height: 100%; margin: 0; padding: 0; border-radius: 2px;
  box-sizing: border-box; line-height: 1; display: flex; align-items: center; justify-content: center; gap: 6px; overflow: visible;
  font-variant-numeric: tabular-nums; color: var(--jp-ui-font-color1, inherit);
  background: linear-gradient(to top, var(--msnb-tint, rgba(33,150,243,.38)) var(--msnb-fill, 0%), transparent 0) var(--jp-layout-color2, rgba(128,128,128,.14)); }
.msnb-board { --jp-widgets-dropdown-arrow: url("data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 18 18'%3E%3Cpath d='M5 7.5 9 11.5 13 7.5' fill='none' stroke='%23808080' stroke-width='1.8'/%3E%3C/svg%3E"); }
.msnb-sliders .widget-readout { min-width: 150px; text-align: left; }
.msnb-workers .jupyter-button i { display: none; }
.msnb-workers .jupyter-button::before { content: ""; flex: none; width: 10px; height: 10px; background: var(--msnb-tone);
  -webkit-mask: var(--msnb-mark) center / contain no-repeat; mask: var(--msnb-mark) center / contain no-repeat; }
.msnb-workers .jupyter-button:hover:not(.mod-active) { box-shadow: inset 0 0 0 1px var(--jp-border-color1, rgba(128,128,128,.6)); }
.msnb-workers .jupyter-button.mod-active { outline: 2px solid var(--jp-brand-color1, #1976d2); outline-offset: 0; box-shadow: none; }
.msnb-workers .jupyter-button:focus-visible { outline: 2px solid var(--jp-ui-font-color1, currentColor); outline-offset: 1px; }
</style>"""
