"""What the notebooks' tests share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def nothing_left(emulator_home: Path) -> Iterator[None]:
    """The session's emulator, on which there is nothing after a notebook has run, whatever came of it."""
    import multislice_nb as ms

    yield
    left = ms.connect(emulator=True).list()
    for one in left:
        one.delete()
    assert not left, f"{left} stayed"
