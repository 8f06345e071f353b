"""Something that is done again and again on the background loop, for as long as a panel wants it."""

from __future__ import annotations

import abc
import asyncio
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from multislice_nb import _portal

if TYPE_CHECKING:
    from concurrent.futures import Future

    from multislice_nb.widgets.session import Session

__all__ = ["Repeated", "shared"]

Subscription = TypeVar("Subscription")


class Repeated(abc.ABC, Generic[Subscription]):
    """Runs while there are subscribers.

    Args:
        session: Whose queued resources and clusters it is about.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._subscribers: dict[object, Subscription] = {}
        self._task: Future[None] | None = None

    @property
    def running(self) -> bool:
        """Whether it runs."""
        return self._task is not None and not self._task.done()

    def _start(self) -> None:
        """Run from now on, if it does not."""
        if not self.running:
            self._task = asyncio.run_coroutine_threadsafe(self._run(), _portal.loop())

    def unsubscribe(self, who: object) -> None:
        """A panel does not want it any more; without any it stops."""
        self._subscribers.pop(who, None)
        if not self._subscribers and self._task is not None:
            self._task.cancel()
            self._task = None

    @abc.abstractmethod
    async def _run(self) -> None:
        """Do it until cancelled."""


R = TypeVar("R", bound="Repeated[Any]")

_shared: dict[tuple[type, int], Repeated[Any]] = {}


def shared(kind: type[R], session: Session) -> R:
    """The one of a kind that all panels of a session share."""
    made = _shared.setdefault((kind, id(session)), kind(session))
    assert isinstance(made, kind)  # noqa: S101 - by its key
    return made
