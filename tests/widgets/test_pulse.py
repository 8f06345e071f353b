from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from multislice_nb.widgets.pulse import EVERY, LONGEST, PATIENCE, Pulse

if TYPE_CHECKING:
    from collections.abc import Callable

    from multislice_nb.widgets.loop import KernelLoop


class Clock:
    """A loop whose time passes when it is told to."""

    def __init__(self) -> None:
        self.waiting: list[tuple[float, Callable[[], None]]] = []

    def later(self, seconds: float, function: Callable[[], None]) -> Any:
        """As the kernel's loop."""
        self.waiting.append((seconds, function))
        return self

    def cancel(self) -> None:
        """Of what waits."""
        self.waiting.clear()

    def tick(self) -> float:
        """Let the time pass until the next call; how long that is."""
        ((seconds, function),) = self.waiting
        self.waiting.clear()
        function()
        return seconds


def made() -> tuple[Clock, Pulse, list[bool]]:
    """A pulse that is asked for, and what it told."""
    clock, told = Clock(), []
    pulse = Pulse(cast("KernelLoop", clock), lambda: told.append(pulse.there))
    pulse.start()
    return clock, pulse, told


def answer(pulse: Pulse) -> None:
    """As the page does when Play has come to its end."""
    assert pulse.view.playing
    pulse.view.playing = False


def test_a_page_that_answers_is_there() -> None:
    """While each question is answered nothing changes, and a few that are missed mean nothing."""
    clock, pulse, told = made()
    for _ in range(3):
        for _ in range(PATIENCE):
            assert clock.tick() == EVERY
        answer(pulse)
    assert told == []


def test_a_page_that_is_gone_is_asked_less_and_less() -> None:
    """After five missed answers nobody is there; the questions become rare, and any sign of life ends that."""
    clock, pulse, told = made()
    clock.tick()
    answer(pulse)
    waits = [clock.tick() for _ in range(PATIENCE + 12)]
    assert told == [False]
    assert waits[: PATIENCE + 1] == [EVERY] * (PATIENCE + 1)
    assert waits[PATIENCE + 1 :] == sorted(waits[PATIENCE + 1 :])
    assert waits[-1] == LONGEST
    answer(pulse)
    assert told == [False, True]
    assert clock.tick() == EVERY


def test_a_front_end_without_the_widget_is_not_missed() -> None:
    """Who never answered is not said to be gone for that."""
    clock, pulse, told = made()
    for _ in range(3 * PATIENCE):
        clock.tick()
    assert told == []
    assert pulse.there


def test_nobody_is_asked_without_a_view() -> None:
    """Once no view is counted there are no questions, and a late answer does not bring them back."""
    clock, pulse, told = made()
    clock.tick()
    pulse.stop()
    answer(pulse)
    assert clock.waiting == []
    assert told == []
