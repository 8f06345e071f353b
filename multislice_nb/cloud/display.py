"""Tables as text and as HTML, from the same rows, and counts; whatever came from elsewhere is escaped."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["counted", "html_table", "shouted", "text_table"]


def counted(number: int | None, thing: str) -> str:
    """`1 worker`, `4 workers`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def text_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns aligned to their widest cell, as gcloud's lists are."""
    lines = [tuple(header), *(tuple(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def shouted(header: Iterable[str]) -> list[str]:
    """Names of columns as gcloud's lists have them: `NODE_COUNT`."""
    return [name.upper().replace(" ", "_") for name in header]


def html_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "", label: str = ""
) -> str:
    """A plain table, every cell escaped.

    Args:
        header: Names of the columns.
        rows: Their cells.
        caption: What stands above it.
        label: What a screen reader calls it, where something else says so to those who see.
    """
    head = "".join(f'<th scope="col" style="text-align:left">{html.escape(cell)}</th>' for cell in header)
    body = "".join(
        "<tr>" + "".join(f'<td style="text-align:left">{html.escape(cell)}</td>' for cell in row) + "</tr>"
        for row in rows
    )
    title = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    named = f' aria-label="{html.escape(label)}"' if label else ""
    return f"<table{named}>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
