"""What the panel does: off the kernel's thread, with its outcome and its errors written into the panel."""

from __future__ import annotations

import asyncio
import html
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import ipywidgets as widgets

from multislice_nb import _portal
from multislice_nb.errors import MultisliceError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Future

    from multislice_nb.widgets.loop import KernelLoop

__all__ = ["Desk"]

T = TypeVar("T")

_KEPT = 6
"""Outcomes that stay on the panel."""


class Desk:
    """Takes work from buttons and writes what became of it.

    Args:
        loop: Where widgets may be changed.
        hurry: Called when something was done, so that the panel looks again at once.
    """

    def __init__(self, loop: KernelLoop, hurry: Callable[[], None]) -> None:
        self._loop = loop
        self._hurry = hurry
        self._notes: list[list[str]] = []
        self.running: set[Any] = set()
        self.view = widgets.HTML(layout=widgets.Layout(margin="0"))
        self._draw()

    def note(self, text: str, *, tone: str = "good", magic: str = "") -> list[str]:
        """Write a line into the panel; what it returns can be changed with `change`."""
        line = [tone, text, magic, datetime.now().astimezone().strftime("%H:%M:%S")]
        self._notes = [*self._notes[-_KEPT + 1 :], line]
        self._draw()
        return line

    def change(self, line: list[str], text: str, *, tone: str) -> None:
        """Write another text where a line stands."""
        line[:2] = [tone, text]
        self._draw()

    def start(
        self,
        doing: str,
        work: Callable[[Callable[[str], None]], Coroutine[Any, Any, T]],
        *,
        done: str | Callable[[T], str],
        magic: str = "",
        then: Callable[[T], None] | None = None,
        after: Callable[[], None] | None = None,
    ) -> Future[T]:
        """Start something on the background loop; returns at once.

        Args:
            doing: What it is, as in "Deleting demo".
            work: A coroutine function; takes a function that it may call with its steps.
            done: What to write when it went well.
            magic: The line that does the same.
            then: Called with its result, on the kernel's loop.
            after: Called however it ended, on the kernel's loop.
        """
        line = self.note(f"{doing} …", tone="busy", magic=magic)

        def report(step: str) -> None:
            self._loop.call(lambda: self.change(line, f"{doing}: {step} …", tone="busy"))

        def ended(future: Future[T]) -> None:
            self._loop.call(lambda: self._ended(line, future, done, then, after))

        future = asyncio.run_coroutine_threadsafe(work(report), _portal.loop())
        self.running.add(future)
        future.add_done_callback(ended)
        return future

    def quietly(
        self, work: Callable[[Callable[[str], None]], Coroutine[Any, Any, T]], *, then: Callable[[T], None]
    ) -> None:
        """Start something of which only a failure is written, once as long as it can be read."""

        def ended(future: Future[T]) -> None:
            self._loop.call(lambda: finish(future))

        def finish(future: Future[T]) -> None:
            self.running.discard(future)
            error = None if future.cancelled() else future.exception()
            if error is not None:
                self._tell(_told(error))
            elif not future.cancelled():
                then(future.result())

        future = asyncio.run_coroutine_threadsafe(work(lambda _: None), _portal.loop())
        self.running.add(future)
        future.add_done_callback(ended)

    def _tell(self, failure: str) -> None:
        if ["bad", failure] not in (line[:2] for line in self._notes):
            self.note(failure, tone="bad")

    def _ended(
        self,
        line: list[str],
        future: Future[T],
        done: str | Callable[[T], str],
        then: Callable[[T], None] | None,
        after: Callable[[], None] | None,
    ) -> None:
        self.running.discard(future)
        error = None if future.cancelled() else future.exception()
        if future.cancelled():
            self.change(line, "Cancelled.", tone="warning")
        elif error is not None:
            self.change(line, _told(error), tone="bad")
        else:
            result = future.result()
            self.change(line, done if isinstance(done, str) else done(result), tone="good")
            if then is not None:
                then(result)
        if after is not None:
            after()
        self._hurry()

    def _draw(self) -> None:
        from multislice_nb.widgets.style import look_of

        shapes = {"good": "ACTIVE", "bad": "FAILED", "busy": "PROVISIONING", "warning": "SUSPENDED"}
        lines = []
        for tone, text, magic, at in self._notes:
            shape = look_of(shapes[tone]).shape
            same = f' <code class="msnb-code">{html.escape(magic)}</code>' if magic else ""
            lines.append(
                f'<div><svg class="msnb-{tone}" viewBox="0 0 12 12" width="11" height="11" aria-hidden="true">{shape}</svg> '
                f'<span class="msnb-muted">{at}</span> '
                f'<span style="white-space:pre-wrap">{html.escape(text)}</span>{same}</div>'
            )
        self.view.value = (
            f'<div class="msnb msnb-notes" role="status" aria-live="polite">{"".join(lines)}</div>'
        )


def _told(error: BaseException) -> str:
    """Our errors speak for themselves; of others the kind is worth knowing."""
    return str(error) if isinstance(error, MultisliceError) else f"{type(error).__name__}: {error}"
