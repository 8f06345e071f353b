"""Operational intensity against the hardware's threshold, as a bar."""

from __future__ import annotations

import html
import math

__all__ = ["gauge_html"]

_WIDTH, _DECADES = 560.0, 2.0
"""Pixels, and powers of ten on both sides of the threshold."""


def gauge_html(intensity: float, threshold: float, generation: str) -> str:
    """A bar on a logarithmic scale with the threshold in its middle.

    Args:
        intensity: FLOPs of the pass backward for each bit over DCN.
        threshold: FLOP/s of a host over its DCN bits per second.
        generation: Whose threshold it is.
    """
    share = math.log10(max(intensity, 1e-9) / threshold) / _DECADES
    length = min(1.0, max(0.02, (1 + share) / 2)) * _WIDTH
    ratio = intensity / threshold
    verdict, tone = (
        ("DCN is hidden with margin", "good")
        if ratio >= 2
        else ("DCN is hidden, with little margin", "warning")
        if ratio >= 1
        else ("DCN slows training down", "bad")
    )
    told = f"{intensity:,.0f} of {threshold:,.0f} FLOPs per bit ({ratio:.2f} x): {verdict}"
    middle = _WIDTH / 2
    return (
        f'<svg class="msnb-{tone}" width="100%" style="max-width:{_WIDTH:.0f}px;display:block;margin:6px 0 2px" '
        f'viewBox="0 0 {_WIDTH:.0f} 30" role="img" aria-label="{html.escape(told)}">'
        f'<rect x="0" y="4" width="{_WIDTH:.0f}" height="12" rx="2" fill="currentColor" opacity=".18"/>'
        f'<rect x="0" y="4" width="{length:.1f}" height="12" rx="2" fill="currentColor"/>'
        f'<line x1="{middle}" y1="0" x2="{middle}" y2="20" class="msnb-ink" stroke-width="2"/>'
        f'<text x="{middle}" y="29" text-anchor="middle" font-size="10" class="msnb-inktext">'
        f"{html.escape(generation)}: {threshold:,.0f}</text></svg>"
        f"<p>Operational intensity {html.escape(told)}</p>"
    )
