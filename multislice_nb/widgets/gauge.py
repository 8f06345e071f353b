"""Operational intensity against the hardware's threshold, as a bar."""

from __future__ import annotations

import html

from multislice_nb._texts import grouped

__all__ = ["gauge_html"]

_WIDTH, _TIMES = 560.0, 3.0
"""Pixels, and how many times the threshold they stand for; more fills the bar."""


def gauge_html(intensity: float, threshold: float, generation: str) -> str:
    """A bar with marks at the threshold and at twice of it, the margin that is advised.

    Args:
        intensity: FLOPs of the pass backward for each bit over DCN.
        threshold: FLOP/s of a host over its DCN bits per second.
        generation: Whose threshold it is.
    """
    ratio = intensity / threshold
    length = min(1.0, ratio / _TIMES) * _WIDTH
    verdict, tone = (
        ("DCN is hidden with margin", "good")
        if ratio >= 2
        else ("DCN is hidden, with little margin", "warning")
        if ratio >= 1
        else ("DCN slows training down", "bad")
    )
    told = f"{grouped(intensity)} of {grouped(threshold)} FLOPs per bit ({ratio:.2f} x): {verdict}"
    marks = "".join(
        f'<line x1="{at:.1f}" y1="0" x2="{at:.1f}" y2="20" class="msnb-ink" stroke-width="2"/>'
        f'<text x="{at:.1f}" y="29" text-anchor="middle" font-size="10" class="msnb-inktext">{html.escape(text)}</text>'
        for at, text in (
            (_WIDTH / _TIMES, f"{generation}: {grouped(threshold)}"),
            (2 * _WIDTH / _TIMES, "with margin"),
        )
    )
    return (
        f'<svg class="msnb-{tone}" width="100%" style="max-width:{_WIDTH:.0f}px;display:block;margin:6px 0 2px" '
        f'viewBox="0 0 {_WIDTH:.0f} 33" role="img" aria-label="{html.escape(told)}">'
        f'<rect x="0" y="4" width="{_WIDTH:.0f}" height="12" rx="2" fill="currentColor" opacity=".18"/>'
        f'<rect x="0" y="4" width="{length:.1f}" height="12" rx="2" fill="currentColor"/>'
        f"{marks}</svg>"
        f"<p>Operational intensity {html.escape(told)}</p>"
    )
