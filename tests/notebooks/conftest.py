"""What the notebooks' tests share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def nothing_left(emulator_home: Path) -> Iterator[None]:
    """The session's emulator, on which a notebook leaves nothing, whatever comes of it."""
    import multislice_nb as ms

    before = {one.name for one in ms.connect(emulator=True).list()}
    yield
    left = [one for one in ms.connect(emulator=True).list() if one.name not in before]
    for one in left:
        one.delete()
    assert not left, f"{left} stayed"
